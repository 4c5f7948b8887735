// Writes one record to each partition and reads them back, over TLS: java -cp JARS ByName.java BOOTSTRAP CA TOPIC COUNT.
// Prints the values in the order of their partitions.

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class ByName {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", args[0], "security.protocol", "SSL",
            "max.block.ms", Patience.MS, "ssl.truststore.type", "PEM", "ssl.truststore.location", args[1]));
        int count = Integer.parseInt(args[3]);
        Map<TopicPartition, Long> written = new HashMap<>();
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < count; n++) {
                var done = producer.send(new ProducerRecord<>(args[2], n, null, "java " + n)).get();
                written.put(new TopicPartition(args[2], n), done.offset());
            }
        }
        var read = new TreeMap<Integer, String>();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(written.keySet());
            written.forEach(consumer::seek);
            while (read.size() < count)
                consumer.poll(Duration.ofMillis(200)).forEach(record -> read.put(record.partition(), record.value()));
        }
        System.out.println(String.join(",", read.values()));
    }
}
