package esker.hbase;

import java.util.Arrays;

/** An index entry: the place of its cell. */
final class Entry implements Comparable<Entry> {
  /** What the name of its table adds to that of the records. */
  final String table;
  final byte[] row;
  final byte[] column;
  final long timestamp;

  Entry(String table, byte[] row, byte[] column, long timestamp) {
    this.table = table;
    this.row = row;
    this.column = column;
    this.timestamp = timestamp;
  }

  /** By table, then by partition, so that the entries of a partition are removed together. */
  @Override
  public int compareTo(Entry other) {
    int order = table.compareTo(other.table);
    if (order == 0) {
      order = Arrays.compareUnsigned(row, other.row);
    }
    return order != 0 ? order : Arrays.compareUnsigned(column, other.column);
  }
}
