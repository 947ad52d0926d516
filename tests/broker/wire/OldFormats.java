import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.TimestampType;

/** Prints message sets of formats 0 and 1 as Kafka 3.9 itself writes them: a line per set, name and bytes in hex. */
public class OldFormats {
    public static void main(String[] arguments) {
        CompressionType[] codecs = {
            CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4
        };
        for (byte magic = 0; magic <= 1; magic++) {
            for (CompressionType codec : codecs) {
                print(magic, codec, magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME);
                if (magic == 1) {
                    print(magic, codec, TimestampType.LOG_APPEND_TIME);
                }
            }
        }
    }

    private static void print(byte magic, CompressionType codec, TimestampType times) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16), magic,
            Compression.of(codec).build(), times, 100L, times == TimestampType.LOG_APPEND_TIME ? 1500000000777L : -1L);
        for (int at = 0; at < 7; at++) {
            long timestamp = magic == 0 ? -1L : 1500000000000L + at * 10 - (at % 3) * 1000;
            byte[] key = at % 3 == 1 ? null : ("k" + at).getBytes();
            byte[] value = at % 4 == 2 ? null : ("v" + at).repeat(at * 40).getBytes();
            builder.append(timestamp, key, value);
        }
        MemoryRecords built = builder.build();
        byte[] bytes = new byte[built.sizeInBytes()];
        built.buffer().duplicate().get(bytes);
        System.out.println(magic + " " + codec.name + " " + times.name + " " + HexFormat.of().formatHex(bytes));
    }
}
