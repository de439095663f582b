package esker.hbase;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;

/**
 * The note of a version's index entries that is part of its value: the first byte is 2, the last 4
 * are the note's length. For each entry it has what the table's name adds to that of the records,
 * the row, and the part of the column that does not follow from the version; each a varint of the
 * length, then the bytes.
 */
final class Note {
  private static final byte NOTED = 2;

  private Note() {}

  /** The entries of a version; null if it has no note, or a malformed one. */
  static List<Entry> entries(Cell cell, Version version) {
    byte[] value = CellUtil.cloneValue(cell);
    if (value.length < 5 || value[0] != NOTED) {
      return null;
    }
    int length = ByteBuffer.wrap(value, value.length - 4, 4).getInt();
    if (length < 0 || length > value.length - 5) {
      return null;
    }
    ByteBuffer note = ByteBuffer.wrap(value, value.length - 4 - length, length);
    byte[] end = end(cell, version);
    List<Entry> entries = new ArrayList<>();
    while (note.hasRemaining()) {
      byte[] table = next(note);
      byte[] row = next(note);
      byte[] token = next(note);
      if (table == null || row == null || token == null) {
        return null;
      }
      byte[] column = ByteBuffer.allocate(token.length + end.length).put(token).put(end).array();
      String name = new String(table, StandardCharsets.UTF_8);
      entries.add(new Entry(name, row, column, version.timestamp));
    }
    return entries;
  }

  /** What each entry's column ends with: the timestamp, inverted; the key; its length. */
  private static byte[] end(Cell cell, Version version) {
    // The first byte of a row is a hash of the key behind it.
    int length = cell.getRowLength() - 1;
    ByteBuffer end = ByteBuffer.allocate(8 + length + 4);
    end.putLong(~version.timestamp);
    end.put(cell.getRowArray(), cell.getRowOffset() + 1, length);
    return end.putInt(length).array();
  }

  private static byte[] next(ByteBuffer note) {
    long length = 0;
    for (int shift = 0; ; shift += 7) {
      if (!note.hasRemaining() || shift > 28) {
        return null;
      }
      byte b = note.get();
      length |= (long) (b & 0x7f) << shift;
      if (b >= 0) {
        break;
      }
    }
    if (length > note.remaining()) {
      return null;
    }
    byte[] bytes = new byte[(int) length];
    note.get(bytes);
    return bytes;
  }
}
