// An idempotent producer: java -cp JARS Idempotent.java BOOTSTRAP TOPIC COUNT DELIVERY_TIMEOUT_MS.
// Sends 0..COUNT-1 to partition 0, up to five requests at a time, and prints the values that were acknowledged.

import java.util.Map;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.Collections;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Idempotent {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", args[0], "enable.idempotence", true, "linger.ms", 0, "batch.size", 200,
            "retry.backoff.ms", 20, "request.timeout.ms", 1000, "delivery.timeout.ms", args[3], "max.block.ms", Patience.MS);
        SortedSet<Integer> acknowledged = Collections.synchronizedSortedSet(new TreeSet<>());
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < Integer.parseInt(args[2]); n++) {
                int value = n;
                producer.send(new ProducerRecord<>(args[1], 0, null, "" + value), (done, error) -> {
                    if (error == null)
                        acknowledged.add(value);
                });
                if (n == 0)
                    producer.flush();
                if (n % 20 == 0)
                    Thread.sleep(1);
            }
        }
        System.out.println(acknowledged.toString().replaceAll("[\\[\\] ]", ""));
    }
}
