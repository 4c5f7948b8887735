import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.EndpointType;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.requests.DescribeConfigsResponse;
import org.apache.kafka.common.requests.FindCoordinatorRequest;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.SecurityProtocol;

/** Prints the numbers and names of Kafka's enumerations: an API or *, a field, a number, a name. */
public class ValueNames {
    static void print(String api, String field, int number, Object name) {
        System.out.println(api + " " + field + " " + number + " " + name);
    }

    public static void main(String[] args) {
        for (IsolationLevel each : IsolationLevel.values()) print("*", "isolation_level", each.id(), each.name());
        for (PatternType each : PatternType.values()) print("*", "pattern_type", each.code(), each.name());
        for (AclPermissionType each : AclPermissionType.values()) print("*", "permission_type", each.code(), each.name());
        for (AclOperation each : AclOperation.values()) print("CreateAcls", "operation", each.code(), each.name());
        for (ResourceType each : ResourceType.values()) print("CreateAcls", "resource_type", each.code(), each.name());
        for (ConfigResource.Type each : ConfigResource.Type.values()) print("DescribeConfigs", "resource_type", each.id(), each.name());
        for (AlterConfigOp.OpType each : AlterConfigOp.OpType.values()) print("IncrementalAlterConfigs", "config_operation", each.id(), each.name());
        for (FindCoordinatorRequest.CoordinatorType each : FindCoordinatorRequest.CoordinatorType.values()) print("FindCoordinator", "key_type", each.id(), each.name());
        for (DescribeConfigsResponse.ConfigSource each : DescribeConfigsResponse.ConfigSource.values()) print("DescribeConfigs", "config_source", each.id(), each.name());
        for (DescribeConfigsResponse.ConfigType each : DescribeConfigsResponse.ConfigType.values()) print("*", "config_type", each.id(), each.name());
        for (ScramMechanism each : ScramMechanism.values()) print("AlterUserScramCredentials", "mechanism", each.type(), each.name());
        for (EndpointType each : EndpointType.values()) print("*", "endpoint_type", each.id(), each.name());
        for (ElectionType each : ElectionType.values()) print("ElectLeaders", "election_type", each.value, each.name());
        for (SecurityProtocol each : SecurityProtocol.values()) print("*", "security_protocol", each.id, each.name());
        for (FeatureUpdate.UpgradeType each : FeatureUpdate.UpgradeType.values()) print("UpdateFeatures", "upgrade_type", each.code(), each.name());
        for (AcknowledgeType each : AcknowledgeType.values()) print("*", "acknowledge_types", each.id, each.name());
    }
}
