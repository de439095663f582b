package esker.hbase;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.KeyValueUtil;
import org.apache.hadoop.hbase.util.Bytes;

/** Cells as the library writes them. */
final class Cells {
  static final byte[] FAMILY = Bytes.toBytes("d");

  private Cells() {}

  static byte[] row(String key) {
    return Bytes.add(new byte[] {(byte) key.hashCode()}, Bytes.toBytes(key));
  }

  static byte[] column(long timestamp, boolean isDeletion) {
    byte kind = (byte) (isDeletion ? 0 : 1);
    return ByteBuffer.allocate(9).putLong(~timestamp).put(kind).array();
  }

  private static Cell cell(String key, long at, boolean isDeletion, KeyValue.Type type, byte[] value) {
    return new KeyValue(row(key), FAMILY, column(at, isDeletion), at, type, value);
  }

  /** A record with entries of tokens in the index "_i". */
  static Cell record(String key, long at, String... tokens) {
    ByteArrayOutputStream note = new ByteArrayOutputStream();
    for (String token : tokens) {
      for (String part : new String[] {"_i", "row of " + token, token}) {
        note.write(part.length());
        note.writeBytes(part.getBytes(StandardCharsets.UTF_8));
      }
    }
    byte[] value = Bytes.add(new byte[] {2}, Bytes.toBytes("a record"));
    value = Bytes.add(value, note.toByteArray(), Bytes.toBytes(note.size()));
    return cell(key, at, false, KeyValue.Type.Put, value);
  }

  /** A record without a note. */
  static Cell plain(String key, long at) {
    return cell(key, at, false, KeyValue.Type.Put, new byte[] {1, 'x'});
  }

  static Cell deletion(String key, long at) {
    return cell(key, at, true, KeyValue.Type.Put, new byte[] {1});
  }

  /** The marker that a version was removed for good. */
  static Cell marker(String key, long at, boolean isDeletion) {
    return cell(key, at, isDeletion, KeyValue.Type.DeleteColumn, new byte[0]);
  }

  static Cell copy(Cell cell) {
    return KeyValueUtil.copyToNewKeyValue(cell);
  }
}
