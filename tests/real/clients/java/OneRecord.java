import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends one record: BOOTSTRAP TOPIC [SETTING=VALUE...]. Prints "sent", or the class of the exception, as soon as it gives up. */
public class OneRecord {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", args[0], "max.block.ms", Patience.MS,
            "request.timeout.ms", (int) Patience.MS, "delivery.timeout.ms", (int) (2 * Patience.MS)));
        for (int at = 2; at < args.length; at++) {
            String[] pair = args[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(args[1], "one")).get();
            System.out.println("sent");
        } catch (ExecutionException | KafkaException failed) {
            System.out.println(failed.getCause().getClass().getSimpleName() + " " + failed.getCause().getMessage());
        }
        System.exit(0);
    }
}
