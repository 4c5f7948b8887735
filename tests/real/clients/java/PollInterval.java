import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.*;

/** Reads as a group member, prints "reading", works on a record until it is told to go on (a byte on its input), and
 *  reads again. max.poll.interval.ms is 2 s. */
public class PollInterval {
    public static void main(String[] args) throws Exception {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0], "group.id", args[1], "client.id", args[1], "group.protocol", args[3],
            "max.poll.interval.ms", 2000, "max.poll.records", 1, "auto.offset.reset", "earliest",
            "fetch.max.wait.ms", 2000, "enable.metrics.push", false);
        double patience = Double.parseDouble(System.getenv("BARNABAS_TEST_PATIENCE"));
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            for (int read = 0; read < 2; read++) {
                long end = System.currentTimeMillis() + (long) (patience * 1000);
                while (consumer.poll(Duration.ofMillis(200)).isEmpty()) {
                    if (System.currentTimeMillis() > end) {
                        throw new IllegalStateException("no record " + read + " within " + patience + " s");
                    }
                }
                if (read == 0) {
                    System.out.println("reading");
                    System.in.read();
                }
            }
        }
    }
}
