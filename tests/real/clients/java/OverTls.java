import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;

/** Lists the topics over TLS: BOOTSTRAP SETTING=VALUE... Prints "works", or the class of the exception, as soon as it gives up. */
public class OverTls {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", args[0], "security.protocol", "SSL"));
        for (int at = 1; at < args.length; at++) {
            String[] pair = args[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        try (var admin = Admin.create(settings)) {
            admin.listTopics().names().get();
            System.out.println("works");
        } catch (ExecutionException failed) {
            System.out.println(failed.getCause().getClass().getSimpleName());
        }
        System.exit(0);
    }
}
