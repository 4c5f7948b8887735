import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;

/** The Java client of whatever release is on the class path; ../../stages.py says what it does. Later is what 0.10 lacks. */
public class Program {
    interface Stage {
        Map<String, Object> run(String bootstrap, String run) throws Exception;
    }

    static List<String> read(KafkaConsumer<String, String> consumer, int count) throws Exception {
        List<String> values = new ArrayList<>();
        for (ConsumerRecord<String, String> record : AnyRelease.read(consumer, count)) values.add(record.value());
        return values;
    }

    static Map<String, Object> group(String bootstrap, String run) throws Exception {
        String topic = run + "-orders";
        List<TopicPartition> both = Arrays.asList(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        List<List<String>> seen = new ArrayList<>();
        List<Object> committed = new ArrayList<>();
        for (String word : new String[] {"plain", "gzip"}) {
            Map<String, Object> settings = AnyRelease.settings(bootstrap, "acks", "all", "linger.ms", 20,
                "compression.type", word.equals("gzip") ? "gzip" : "none");
            if (ProducerConfig.configNames().contains("enable.idempotence")) settings.put("enable.idempotence", false);
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int n = 0; n < 10; n++) sent.add(producer.send(new ProducerRecord<>(topic, n % 2, "k" + n, word + " " + n)));
                for (Future<RecordMetadata> each : sent) each.get(Patience.MS, TimeUnit.MILLISECONDS);
            }
            try (KafkaConsumer<String, String> member = new KafkaConsumer<>(AnyRelease.settings(bootstrap, "group.id", run + "-group"))) {
                member.subscribe(Collections.singletonList(topic));
                List<String> values = read(member, 10);
                Collections.sort(values);
                member.commitSync();
                long sum = 0;
                for (TopicPartition partition : both) sum += AnyRelease.committed(member, partition);
                seen.add(values);
                committed.add(sum);
            }
        }
        Map<String, Object> said = new TreeMap<>();
        said.put("first", seen.get(0));
        said.put("second", seen.get(1));
        said.put("committed", committed);
        return said;
    }

    static Map<String, Object> defaults(String bootstrap, String run) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(AnyRelease.settings(bootstrap))) {
            producer.send(new ProducerRecord<>(run + "-booked", 1, "k", "default")).get(Patience.MS, TimeUnit.MILLISECONDS);
        }
        return new TreeMap<>(Collections.singletonMap("sent", 1));
    }

    static String json(Object value) {
        StringJoiner parts;
        if (value instanceof Map) {
            parts = new StringJoiner(", ", "{", "}");
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) parts.add(json(entry.getKey()) + ": " + json(entry.getValue()));
        } else if (value instanceof List) {
            parts = new StringJoiner(", ", "[", "]");
            for (Object each : (List<?>) value) parts.add(json(each));
        } else if (value instanceof String) {
            StringBuilder quoted = new StringBuilder("\"");
            for (char c : ((String) value).toCharArray()) quoted.append(c < ' ' ? ' ' : c == '"' || c == '\\' ? "\\" + c : c);
            return quoted + "\"";
        } else {
            return String.valueOf(value);
        }
        return parts.toString();
    }

    static Map<String, Object> tried(Stage stage, String bootstrap, String run) {
        ExecutorService alone = Executors.newSingleThreadExecutor();
        try {
            return alone.submit(() -> stage.run(bootstrap, run)).get(2 * Patience.MS, TimeUnit.MILLISECONDS);
        } catch (Exception error) {
            Throwable inner = error;
            while (inner.getCause() != null) inner = inner.getCause();
            Map<String, Object> said = new TreeMap<>();
            said.put("error", inner.getClass().getSimpleName());
            said.put("text", String.valueOf(inner.getMessage()));
            return said;
        }
    }

    /** AppInfoParser, which knows it, has moved to another package in 4.4. */
    static String version() throws java.io.IOException {
        java.util.Properties found = new java.util.Properties();
        try (java.io.InputStream file = Program.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            found.load(file);
        }
        return found.getProperty("version");
    }

    public static void main(String[] given) throws Exception {
        Map<String, Stage> stages = new LinkedHashMap<>();
        stages.put("group", Program::group);
        stages.put("defaults", Program::defaults);
        try {
            @SuppressWarnings("unchecked")
            Map<String, Stage> later = (Map<String, Stage>) Class.forName("Later").getMethod("stages").invoke(null);
            stages.putAll(later);
        } catch (ClassNotFoundException old) {
            // not compiled: this release has neither transactions nor an admin client
        }
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("client", "Java " + version());
        for (Map.Entry<String, Stage> stage : stages.entrySet()) {
            said.put(stage.getKey(), tried(stage.getValue(), given[0], given[1]));
            System.out.println(json(said)); // after each: the last line counts, also of a program that hangs
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
