import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.runtime.distributed.*;
import org.apache.kafka.connect.util.ConnectorTaskId;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.internals.assignment.AssignmentInfo;
import org.apache.kafka.streams.processor.internals.assignment.SubscriptionInfo;
import org.apache.kafka.streams.state.HostInfo;

/**
 * Writes payloads with Kafka's own classes, a line each: name, version, hex. Made group_payloads.txt, which says how.
 */
public class GroupPayloads {
    static void print(String name, int version, ByteBuffer buffer) {
        buffer.rewind();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        System.out.println(name + " " + version + " " + HexFormat.of().formatHex(bytes));
    }

    public static void main(String[] args) {
        List<TopicPartition> owned = List.of(new TopicPartition("orders", 0), new TopicPartition("orders", 2));
        ByteBuffer mine = ByteBuffer.wrap(new byte[] {1, 2, 3});
        for (short v = 0; v <= 3; v++) {
            print("consumer-subscription", v, ConsumerProtocol.serializeSubscription(
                new Subscription(List.of("orders", "clicks"), mine.duplicate(), owned, 7, Optional.of("rack-a")), v));
            print("consumer-assignment", v, ConsumerProtocol.serializeAssignment(new Assignment(owned, mine.duplicate()), v));
        }
        for (int v = 1; v <= 11; v++) {
            Map<TaskId, Long> offsets = new TreeMap<>(Map.of(new TaskId(0, 1), 4711L, new TaskId(1, 0), -2L));
            print("streams-subscription", v, new SubscriptionInfo(v, 11, new ProcessId(new UUID(1, 2)), "app:9080",
                offsets, (byte) 5, 0, Map.of("zone", "eu")).encode());
            TaskId standby = v >= 10 ? new TaskId(1, 1, "top") : new TaskId(1, 1);
            Map<HostInfo, Set<TopicPartition>> hosts = new TreeMap<>(Comparator.comparing(HostInfo::host));
            hosts.put(new HostInfo("app-1", 9080), new LinkedHashSet<>(owned));
            Map<HostInfo, Set<TopicPartition>> standbys = Map.of(new HostInfo("app-2", 9081), Set.of(new TopicPartition("clicks", 1)));
            AssignmentInfo info = new AssignmentInfo(v, 11, List.of(new TaskId(0, 0), new TaskId(0, 2)),
                Map.of(standby, Set.of(new TopicPartition("clicks", 1))), hosts, v >= 6 ? standbys : Map.of(), 3);
            info.setNextRebalanceTime(1234567890123L);
            print("streams-assignment", v, info.encode());
        }
        List<String> connectors = List.of("sink");
        List<ConnectorTaskId> tasks = List.of(new ConnectorTaskId("sink", 0), new ConnectorTaskId("source", 3));
        print("connect-subscription", 0, ConnectProtocol.serializeMetadata(new ConnectProtocol.WorkerState("http://w1:8083/", 42)));
        print("connect-assignment", 0, ConnectProtocol.serializeAssignment(
            new ConnectProtocol.Assignment((short) 0, "leader-1", "http://w1:8083/", 42, connectors, tasks)));
        for (short v = 1; v <= 2; v++) {
            ExtendedAssignment assignment = new ExtendedAssignment(v, (short) 0, "leader-1", "http://w1:8083/", 42,
                connectors, tasks, List.of("old"), List.of(), 300000);
            print("connect-assignment", v, IncrementalCooperativeConnectProtocol.serializeAssignment(assignment, v == 2));
            print("connect-subscription", v, IncrementalCooperativeConnectProtocol.serializeMetadata(
                new ExtendedWorkerState("http://w1:8083/", 42, assignment), v == 2));
        }
    }
}
