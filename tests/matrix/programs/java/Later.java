import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** What came with 0.11: transactions and the admin client. */
public class Later {
    public static Map<String, Program.Stage> stages() {
        Map<String, Program.Stage> stages = new LinkedHashMap<>();
        stages.put("transactions", Later::transactions);
        stages.put("admin", Later::admin);
        return stages;
    }

    /** By the group's name until 4.0, by its metadata since 2.5. */
    static void sendOffsets(KafkaProducer<String, String> producer, Map<TopicPartition, OffsetAndMetadata> offsets, String group,
            KafkaConsumer<String, String> consumer) throws Exception {
        try {
            Class<?> metadata = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
            Object of = KafkaConsumer.class.getMethod("groupMetadata").invoke(consumer);
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, metadata).invoke(producer, offsets, of);
        } catch (ClassNotFoundException | NoSuchMethodException old) {
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class).invoke(producer, offsets, group);
        }
    }

    static Map<String, Object> transactions(String bootstrap, String run) throws Exception {
        TopicPartition source = new TopicPartition(run + "-orders", 0), target = new TopicPartition(run + "-booked", 0);
        String ledger = run + "-ledger";
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(AnyRelease.settings(bootstrap, "transactional.id", run + "-tx"));
                KafkaConsumer<String, String> reader = new KafkaConsumer<>(AnyRelease.settings(bootstrap, "group.id", ledger,
                    "isolation.level", "read_committed"))) {
            producer.initTransactions();
            producer.beginTransaction();
            for (int n = 0; n < 3; n++) producer.send(new ProducerRecord<>(target.topic(), 0, null, "booked " + n));
            sendOffsets(producer, Collections.singletonMap(source, new OffsetAndMetadata(7)), ledger, reader);
            producer.commitTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(target.topic(), 0, (String) null, "dropped")).get(Patience.MS, TimeUnit.MILLISECONDS);
            producer.abortTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(target.topic(), 0, null, "end"));
            producer.commitTransaction();
            reader.assign(Collections.singletonList(target));
            reader.seekToBeginning(Collections.singletonList(target));
            Map<String, Object> said = new TreeMap<>();
            said.put("committed", Program.read(reader, 4));
            said.put("offset", AnyRelease.committed(reader, source));
            return said;
        }
    }

    static Map<String, Object> admin(String bootstrap, String run) throws Exception {
        String topic = run + "-made";
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (AdminClient admin = AdminClient.create(AnyRelease.settings(bootstrap))) {
            NewTopic made = new NewTopic(topic, 3, (short) 1).configs(Collections.singletonMap("retention.ms", "3600000"));
            admin.createTopics(Collections.singleton(made)).all().get(Patience.MS, TimeUnit.MILLISECONDS);
            long end = System.currentTimeMillis() + Patience.MS;
            while (!admin.listTopics().names().get(Patience.MS, TimeUnit.MILLISECONDS).contains(topic))
                if (System.currentTimeMillis() > end) throw new IllegalStateException(topic + " does not appear");
            Map<String, Object> said = new TreeMap<>();
            said.put("partitions", partitions(admin, topic));
            said.put("retention", admin.describeConfigs(Collections.singleton(resource)).all()
                .get(Patience.MS, TimeUnit.MILLISECONDS).get(resource).get("retention.ms").value());
            admin.deleteTopics(Collections.singleton(topic)).all().get(Patience.MS, TimeUnit.MILLISECONDS);
            said.put("deleted", true);
            return said;
        }
    }

    /** all() until 4.0, allTopicNames() since 3.1. */
    @SuppressWarnings("unchecked")
    static int partitions(AdminClient admin, String topic) throws Exception {
        Object found = admin.describeTopics(Collections.singleton(topic));
        java.lang.reflect.Method all;
        try {
            all = DescribeTopicsResult.class.getMethod("allTopicNames");
        } catch (NoSuchMethodException old) {
            all = DescribeTopicsResult.class.getMethod("all");
        }
        Map<String, TopicDescription> topics = ((org.apache.kafka.common.KafkaFuture<Map<String, TopicDescription>>) all.invoke(found))
            .get(Patience.MS, TimeUnit.MILLISECONDS);
        return topics.get(topic).partitions().size();
    }
}
