import java.util.*;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;

/** Calls of the Java client that are not the same in every release from 0.10 on. */
public class AnyRelease {
    /** Settings of producers and consumers of strings, and pairs of name and value. */
    static Map<String, Object> settings(String bootstrap, Object... more) {
        Map<String, Object> all = new TreeMap<>();
        String text = "org.apache.kafka.common.serialization.String";
        for (String kind : new String[] {"key.", "value."}) {
            all.put(kind + "serializer", text + "Serializer");
            all.put(kind + "deserializer", text + "Deserializer");
        }
        all.put("bootstrap.servers", bootstrap);
        all.put("max.block.ms", Patience.MS);
        all.put("fetch.max.wait.ms", 200);
        all.put("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", false);
        for (int i = 0; i < more.length; i += 2) all.put((String) more[i], more[i + 1]);
        return all;
    }

    /** poll(long) is gone since 4.0, poll(Duration) came with 2.0. */
    @SuppressWarnings("unchecked")
    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        try {
            return (ConsumerRecords<String, String>) KafkaConsumer.class.getMethod("poll", java.time.Duration.class)
                .invoke(consumer, java.time.Duration.ofMillis(200));
        } catch (NoSuchMethodException old) {
            return (ConsumerRecords<String, String>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 200L);
        }
    }

    /** Of one partition until 4.0, of several since 2.4; 0 where nothing is committed. */
    @SuppressWarnings("unchecked")
    static long committed(KafkaConsumer<String, String> consumer, TopicPartition of) throws Exception {
        OffsetAndMetadata found;
        try {
            found = ((Map<TopicPartition, OffsetAndMetadata>) KafkaConsumer.class.getMethod("committed", Set.class)
                .invoke(consumer, Collections.singleton(of))).get(of);
        } catch (NoSuchMethodException old) {
            found = (OffsetAndMetadata) KafkaConsumer.class.getMethod("committed", TopicPartition.class).invoke(consumer, of);
        }
        return found == null ? 0 : found.offset();
    }

    /** So many records. */
    static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int count) throws Exception {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long end = System.currentTimeMillis() + Patience.MS;
        while (found.size() < count) {
            if (System.currentTimeMillis() > end) throw new TimeoutException("got " + found.size() + " of " + count + " records");
            for (ConsumerRecord<String, String> record : poll(consumer)) found.add(record);
        }
        return found;
    }
}
