import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What Kafka's own client does while something goes wrong. A line each on standard input, its words separated by spaces:
 * WHAT BOOTSTRAP TOPIC COUNT [NAME=VALUE ...], and for each a line of what became of it, its words separated by tabs.
 *
 * send: an offset or the exception for each of COUNT records, one request each; "throttled" and milliseconds at the end.
 * transaction: one record and a commit; "committed" or the exception.
 * read, group: the values, until there are COUNT of them or an exception comes (with its message); read without a group, group in one.
 */
public class Reactions {
    private static final Map<String, Object> QUICK = Map.of("retry.backoff.ms", "20", "retry.backoff.max.ms", "60",
        "reconnect.backoff.ms", "10", "reconnect.backoff.max.ms", "50");
    private static final int MS = (int) Patience.MS;

    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String[] words = in.nextLine().split(" ");
            Map<String, Object> settings = new HashMap<>(QUICK);
            settings.put("bootstrap.servers", words[1]);
            for (int n = 4; n < words.length; n++)
                settings.put(words[n].substring(0, words[n].indexOf('=')), words[n].substring(words[n].indexOf('=') + 1));
            int count = Integer.parseInt(words[3]);
            List<String> became = switch (words[0]) {
                case "send" -> send(settings, words[2], count);
                case "transaction" -> transaction(settings, words[2]);
                case "read", "group" -> read(settings, words[2], count, words[0].equals("group"));
                default -> throw new IllegalArgumentException(words[0]);
            };
            System.out.println(String.join("\t", became));
        }
    }

    private static String name(Throwable error) {
        return error.getCause() == null ? error.getClass().getSimpleName() : name(error.getCause());
    }

    private static List<String> send(Map<String, Object> settings, String topic, int count) {
        settings.putAll(Map.of("linger.ms", "0", "delivery.timeout.ms", 2 * MS, "max.block.ms", "" + MS));
        settings.putIfAbsent("request.timeout.ms", MS);
        List<String> became = new ArrayList<>();
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < count; n++) {
                try {
                    became.add("" + producer.send(new ProducerRecord<>(topic, 0, null, "" + n)).get().offset());
                } catch (Exception error) {
                    became.add(name(error));
                }
            }
            producer.metrics().forEach((metric, value) -> {
                if (metric.name().equals("produce-throttle-time-max") && metric.group().equals("producer-metrics"))
                    became.add("throttled " + value.metricValue());
            });
        }
        return became;
    }

    private static List<String> transaction(Map<String, Object> settings, String topic) {
        settings.putAll(Map.of("linger.ms", "0", "transaction.timeout.ms", "10000", "max.block.ms", "" + MS));
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        try {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "in a transaction")).get();
            producer.commitTransaction();
            return List.of("committed");
        } catch (Exception error) {
            return List.of(name(error));
        } finally {
            producer.close(Duration.ZERO);
        }
    }

    private static List<String> read(Map<String, Object> settings, String topic, int count, boolean group) {
        settings.putAll(Map.of("auto.offset.reset", "earliest", "fetch.max.wait.ms", "100", "enable.auto.commit", "false",
            "heartbeat.interval.ms", "100", "session.timeout.ms", "6000"));
        if ("consumer".equals(settings.get("group.protocol")))
            settings.keySet().removeAll(List.of("heartbeat.interval.ms", "session.timeout.ms"));
        List<String> became = new ArrayList<>();
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        try {
            if (group) {
                consumer.subscribe(List.of(topic));
            } else {
                consumer.assign(List.of(new TopicPartition(topic, 0)));
                consumer.seekToBeginning(consumer.assignment());
            }
            long end = System.currentTimeMillis() + MS;
            while (became.size() < count && System.currentTimeMillis() < end)
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) became.add(record.value());
            if (group) consumer.commitSync();
        } catch (Exception error) {
            became.add(name(error) + ": " + error.getMessage());
        } finally {
            consumer.close();
        }
        return became;
    }
}
