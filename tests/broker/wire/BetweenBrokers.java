import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;

/** Prints what Kafka 3.9's brokers say to each other, as it writes it: a line per message, name, version and bytes. */
public class BetweenBrokers {
    static final Uuid ID = new Uuid(0x0011223344556677L, 0x1899aabbccddeeffL);

    public static void main(String[] arguments) {
        print(new LeaderAndIsrRequestData().setControllerId(1).setIsKRaftController(true).setControllerEpoch(2)
            .setBrokerEpoch(3L << 33).setType((byte) 2)
            .setTopicStates(List.of(new LeaderAndIsrRequestData.LeaderAndIsrTopicState().setTopicName("t").setTopicId(ID)
                .setPartitionStates(List.of(new LeaderAndIsrRequestData.LeaderAndIsrPartitionState()
                    .setPartitionIndex(4).setControllerEpoch(5).setLeader(6).setLeaderEpoch(7).setIsr(List.of(6, 8))
                    .setPartitionEpoch(9).setReplicas(List.of(6, 8, 10)).setAddingReplicas(List.of(11))
                    .setRemovingReplicas(List.of(12, 13)).setIsNew(true).setLeaderRecoveryState((byte) 1)))))
            .setLiveLeaders(List.of(new LeaderAndIsrRequestData.LeaderAndIsrLiveLeader()
                .setBrokerId(6).setHostName("host").setPort(9094))), 7);
        LeaderAndIsrResponseData.LeaderAndIsrTopicErrorCollection errors =
            new LeaderAndIsrResponseData.LeaderAndIsrTopicErrorCollection();
        errors.add(new LeaderAndIsrResponseData.LeaderAndIsrTopicError().setTopicId(ID).setPartitionErrors(
            List.of(new LeaderAndIsrResponseData.LeaderAndIsrPartitionError().setPartitionIndex(4).setErrorCode((short) 56))));
        print(new LeaderAndIsrResponseData().setErrorCode((short) 11).setTopics(errors), 7);
        print(new StopReplicaRequestData().setControllerId(1).setIsKRaftController(true).setControllerEpoch(2)
            .setBrokerEpoch(3).setTopicStates(List.of(new StopReplicaRequestData.StopReplicaTopicState().setTopicName("t")
                .setPartitionStates(List.of(new StopReplicaRequestData.StopReplicaPartitionState()
                    .setPartitionIndex(4).setLeaderEpoch(5).setDeletePartition(true))))), 4);
        print(new StopReplicaResponseData().setErrorCode((short) 77).setPartitionErrors(
            List.of(new StopReplicaResponseData.StopReplicaPartitionError()
                .setTopicName("t").setPartitionIndex(4).setErrorCode((short) 74))), 4);
        print(new UpdateMetadataRequestData().setControllerId(1).setIsKRaftController(true).setType((byte) 2)
            .setControllerEpoch(2).setBrokerEpoch(3)
            .setTopicStates(List.of(new UpdateMetadataRequestData.UpdateMetadataTopicState().setTopicName("t").setTopicId(ID)
                .setPartitionStates(List.of(new UpdateMetadataRequestData.UpdateMetadataPartitionState()
                    .setPartitionIndex(4).setControllerEpoch(5).setLeader(6).setLeaderEpoch(7).setIsr(List.of(6, 8))
                    .setZkVersion(9).setReplicas(List.of(6, 8, 10)).setOfflineReplicas(List.of(10))))))
            .setLiveBrokers(List.of(
                new UpdateMetadataRequestData.UpdateMetadataBroker().setId(6).setRack("a").setEndpoints(
                    List.of(new UpdateMetadataRequestData.UpdateMetadataEndpoint()
                        .setPort(9094).setHost("host").setListener("INTERNAL").setSecurityProtocol((short) 3))),
                new UpdateMetadataRequestData.UpdateMetadataBroker().setId(8).setRack(null))), 8);
        print(new UpdateMetadataResponseData().setErrorCode((short) 11), 8);
        print(new ControlledShutdownRequestData().setBrokerId(1).setBrokerEpoch(3), 3);
        ControlledShutdownResponseData.RemainingPartitionCollection remaining =
            new ControlledShutdownResponseData.RemainingPartitionCollection();
        remaining.add(new ControlledShutdownResponseData.RemainingPartition().setTopicName("t").setPartitionIndex(4));
        print(new ControlledShutdownResponseData().setErrorCode((short) 41).setRemainingPartitions(remaining), 3);
    }

    private static void print(ApiMessage message, int version) {
        byte[] bytes = MessageUtil.toByteBuffer(message, (short) version).array();
        String name = message.getClass().getSimpleName().replaceAll("Data$", "");
        System.out.println(name + " " + version + " " + HexFormat.of().formatHex(bytes));
    }
}
