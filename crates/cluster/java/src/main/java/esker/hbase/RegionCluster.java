package esker.hbase;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.FuzzyRowFilter;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.Pair;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The cluster, by the connection of a region server. */
final class RegionCluster implements Cluster {
  private static final Logger LOG = LoggerFactory.getLogger(RegionCluster.class);
  static final byte[] FAMILY = Bytes.toBytes("d");

  /** The row of the catalog; its first byte is a hash of the others. */
  private static final byte[] CATALOG = Bytes.toBytesBinary("\\xBFcatalog");

  private static final byte PLAIN = 1;
  /** A compaction waits no longer for the entries of a table, in milliseconds. */
  private static final int PATIENCE = 30_000;
  /** Rows of a request. */
  private static final int TOGETHER = 500;

  private final Connection connection;
  private final TableName records;

  RegionCluster(Connection connection, TableName records) {
    this.connection = connection;
    this.records = records;
  }

  private Table table(String name) {
    TableName full = TableName.valueOf(records.getNamespaceAsString(), name);
    return connection
        .getTableBuilder(full, null)
        .setOperationTimeout(PATIENCE)
        .setRpcTimeout(PATIENCE / 3)
        .build();
  }

  @Override
  public Definition definition() {
    try (Table state = table("esker_state")) {
      byte[] cell = state.get(new Get(CATALOG)).getValue(FAMILY, new byte[] {0});
      if (cell == null || cell.length < 1 || cell[0] != PLAIN) {
        return null;
      }
      String catalog = new String(cell, 1, cell.length - 1, StandardCharsets.UTF_8);
      return Definition.read(catalog, records.getQualifierAsString());
    } catch (IOException e) {
      LOG.warn("{}: the catalog cannot be read", records, e);
      return null;
    }
  }

  @Override
  public void remove(List<Entry> entries) throws IOException {
    int from = 0;
    while (from < entries.size()) {
      int to = from + 1;
      String table = entries.get(from).table;
      while (to < entries.size() && entries.get(to).table.equals(table)) {
        to++;
      }
      removeFrom(table, entries.subList(from, to));
      from = to;
    }
  }

  private void removeFrom(String suffix, List<Entry> entries) throws IOException {
    try (Table table = table(records.getQualifierAsString() + suffix)) {
      List<Delete> deletes = new ArrayList<>();
      Entry last = null;
      for (Entry entry : entries) {
        if (last == null || !Bytes.equals(last.row, entry.row)) {
          if (deletes.size() >= TOGETHER) {
            table.delete(deletes);
            // `delete` leaves those that failed in the list, and has thrown for them.
            deletes = new ArrayList<>();
          }
          deletes.add(new Delete(entry.row));
        }
        deletes.get(deletes.size() - 1).addColumns(FAMILY, entry.column, entry.timestamp);
        last = entry;
      }
      table.delete(deletes);
    } catch (IOException e) {
      if (!isNoTable(e)) {
        throw e;
      }
      LOG.info("{}: the index {} is gone", records, suffix);
    }
  }

  /** True if a table does not exist. A call with several rows throws one error for all of them. */
  static boolean isNoTable(IOException e) {
    if (e instanceof RetriesExhaustedWithDetailsException) {
      List<Throwable> causes = ((RetriesExhaustedWithDetailsException) e).getCauses();
      return !causes.isEmpty()
          && causes.stream().allMatch(cause -> cause instanceof TableNotFoundException);
    }
    return e instanceof TableNotFoundException;
  }

  /** The rows of announcements begin with a hash: one of any value is looked for. */
  @Override
  public Set<ByteBuffer> announced() throws IOException {
    byte[] name = Bytes.toBytes("removals " + records.getQualifierAsString());
    byte[] row = Bytes.add(new byte[1], name);
    byte[] isAny = new byte[row.length];
    isAny[0] = 1;
    Set<ByteBuffer> keys = new HashSet<>();
    Scan scan = new Scan().addFamily(FAMILY);
    scan.setFilter(new FuzzyRowFilter(List.of(new Pair<>(row, isAny))));
    try (Table state = table("esker_state");
        ResultScanner found = state.getScanner(scan)) {
      for (Result result : found) {
        // The filter also finds longer names.
        if (result.getRow().length != row.length) {
          continue;
        }
        for (Cell cell : result.rawCells()) {
          byte[] value = CellUtil.cloneValue(cell);
          if (value.length > 1 && value[0] == PLAIN) {
            String text = new String(value, 1, value.length - 1, StandardCharsets.UTF_8);
            Announcements.read(text, keys);
          }
        }
      }
    }
    return keys;
  }

  @Override
  public long wall() {
    return System.currentTimeMillis();
  }

  @Override
  public long clock() {
    return System.nanoTime() / 1_000_000;
  }
}
