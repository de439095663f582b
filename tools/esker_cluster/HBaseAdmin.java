import java.util.List;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;

/**
 * What the gateway has no calls for: `flush TABLE` (or `NAMESPACE:`), `compact TABLE` (all files), `split TABLE`,
 * `regions TABLE`, and `raw TABLE`, which counts puts and markers of deletions as they are stored.
 */
public final class HBaseAdmin {
  public static void main(String[] arguments) throws Exception {
    boolean isAll = arguments[1].endsWith(":");
    TableName table = isAll ? null : TableName.valueOf(arguments[1]);
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
        Admin admin = connection.getAdmin()) {
      switch (arguments[0]) {
        case "flush":
          flush(admin, arguments[1], table);
          break;
        case "compact":
          compact(admin, table);
          break;
        case "split":
          split(admin, table);
          break;
        case "regions":
          for (RegionInfo region : admin.getRegions(table)) {
            System.out.println(region.getRegionNameAsString());
          }
          break;
        case "raw":
          raw(connection, table);
          break;
        default:
          throw new IllegalArgumentException(arguments[0]);
      }
    }
  }

  private static void flush(Admin admin, String name, TableName table) throws Exception {
    if (table != null) {
      admin.flush(table);
      return;
    }
    String namespace = name.substring(0, name.length() - 1);
    for (TableName one : admin.listTableNamesByNamespace(namespace)) {
      admin.flush(one);
    }
  }

  /** Flushes and compacts, and waits until no region has more than one file. */
  private static void compact(Admin admin, TableName table) throws Exception {
    admin.flush(table);
    long begun = System.currentTimeMillis();
    for (RegionInfo region : admin.getRegions(table)) {
      long before = admin.getLastMajorCompactionTimestampForRegion(region.getRegionName());
      admin.majorCompactRegion(region.getRegionName());
      // The server tells of a compaction with its next report, seconds later.
      while (System.currentTimeMillis() < begun + 120_000) {
        long now = admin.getLastMajorCompactionTimestampForRegion(region.getRegionName());
        if (now != before || isEmpty(admin, region)) {
          break;
        }
        Thread.sleep(100);
      }
    }
  }

  private static boolean isEmpty(Admin admin, RegionInfo region) throws Exception {
    return admin.getClusterMetrics().getLiveServerMetrics().values().stream()
        .map(server -> server.getRegionMetrics().get(region.getRegionName()))
        .anyMatch(metrics -> metrics != null && metrics.getStoreFileCount() == 0);
  }

  /** Splits each region in the middle of its rows, and waits. */
  private static void split(Admin admin, TableName table) throws Exception {
    List<RegionInfo> before = admin.getRegions(table);
    for (RegionInfo region : before) {
      int first = region.getStartKey().length > 0 ? region.getStartKey()[0] & 0xff : 0;
      int end = region.getEndKey().length > 0 ? region.getEndKey()[0] & 0xff : 256;
      byte[] middle = {(byte) ((first + end) / 2)};
      admin.splitRegionAsync(region.getRegionName(), middle).get();
    }
    System.out.println(before.size() + " regions, now " + admin.getRegions(table).size());
  }

  private static void raw(Connection connection, TableName table) throws Exception {
    long puts = 0;
    long markers = 0;
    try (Table records = connection.getTable(table)) {
      for (var result : records.getScanner(new Scan().setRaw(true).readAllVersions())) {
        for (var cell : result.rawCells()) {
          if (cell.getType() == org.apache.hadoop.hbase.Cell.Type.Put) {
            puts++;
          } else {
            markers++;
          }
        }
      }
    }
    System.out.println(puts + " puts, " + markers + " markers");
  }
}
