import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.*;

/** Reads as a group member, works longer than max.poll.interval.ms on a record, and goes on. */
public class PollInterval {
    public static void main(String[] args) throws Exception {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0], "group.id", args[1], "client.id", args[1], "group.protocol", args[3],
            "max.poll.interval.ms", 2000, "max.poll.records", 1, "auto.offset.reset", "earliest",
            "fetch.max.wait.ms", 2000, "enable.metrics.push", false);
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            for (int paused = 0; paused < 2; paused++) {
                long end = System.currentTimeMillis() + 15000;
                while (consumer.poll(Duration.ofMillis(200)).isEmpty() && System.currentTimeMillis() < end) { }
                if (paused == 0) {
                    Thread.sleep(3500);
                }
            }
        }
    }
}
