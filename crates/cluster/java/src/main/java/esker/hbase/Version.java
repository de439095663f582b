package esker.hbase;

import java.util.Arrays;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;

/**
 * A version of a record, or its deletion, by the name of its column: the timestamp, inverted (8
 * bytes), so that the newest comes first; then 0 for a deletion, 1 for a record.
 */
final class Version {
  private static final int LENGTH = 9;

  final long timestamp;
  final boolean isDeletion;

  private Version(long timestamp, boolean isDeletion) {
    this.timestamp = timestamp;
    this.isDeletion = isDeletion;
  }

  /** The version of a column; null if it is not the name of one. */
  static Version of(Cell cell) {
    byte[] name = CellUtil.cloneQualifier(cell);
    if (name.length != LENGTH || name[8] < 0 || name[8] > 1) {
      return null;
    }
    long inverted = 0;
    for (byte b : Arrays.copyOf(name, 8)) {
      inverted = inverted << 8 | (b & 0xff);
    }
    return new Version(~inverted, name[8] == 0);
  }

  boolean isSame(Version other) {
    return other != null && timestamp == other.timestamp && isDeletion == other.isDeletion;
  }
}
