package esker.hbase;

import java.io.IOException;
import java.util.Optional;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.coprocessor.ObserverContext;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessor;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessorEnvironment;
import org.apache.hadoop.hbase.coprocessor.RegionObserver;
import org.apache.hadoop.hbase.regionserver.FlushLifeCycleTracker;
import org.apache.hadoop.hbase.regionserver.InternalScanner;
import org.apache.hadoop.hbase.regionserver.ScanOptions;
import org.apache.hadoop.hbase.regionserver.ScanType;
import org.apache.hadoop.hbase.regionserver.Store;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionLifeCycleTracker;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionRequest;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The coprocessor of tables of records: it repairs the indexes inside compactions of all files of a
 * region (DELI's streaming design), and keeps versions through flushes and compactions until their
 * index entries are gone.
 *
 * <p>The argument `esker.repair.bytes` of the coprocessor is how many bytes it holds while it
 * collects deletions, 4 MiB without it.
 */
public final class CompactionRepair implements RegionCoprocessor, RegionObserver {
  private static final Logger LOG = LoggerFactory.getLogger(CompactionRepair.class);
  /** Keeps the markers of deletions: above 0, as our timestamps are ahead of milliseconds. */
  static final String KEEPS_DELETES = "hbase.hstore.time.to.purge.deletes";

  static final String HELD = "esker.repair.bytes";
  private static final long USUAL_HELD = 4 << 20;

  @Override
  public Optional<RegionObserver> getRegionObserver() {
    return Optional.of(this);
  }

  @Override
  public void preFlushScannerOpen(
      ObserverContext<RegionCoprocessorEnvironment> context,
      Store store,
      ScanOptions options,
      FlushLifeCycleTracker tracker) {
    keepAll(options);
  }

  @Override
  public void preCompactScannerOpen(
      ObserverContext<RegionCoprocessorEnvironment> context,
      Store store,
      ScanType type,
      ScanOptions options,
      CompactionLifeCycleTracker tracker,
      CompactionRequest request) {
    keepAll(options);
  }

  /** Whatever the table's settings are, no version goes by its age or by its number. */
  private static void keepAll(ScanOptions options) {
    options.readAllVersions();
    options.setTTL(HConstants.FOREVER);
  }

  @Override
  public InternalScanner preCompact(
      ObserverContext<RegionCoprocessorEnvironment> context,
      Store store,
      InternalScanner scanner,
      ScanType type,
      CompactionLifeCycleTracker tracker,
      CompactionRequest request)
      throws IOException {
    if (!request.isAllFiles()) {
      return scanner;
    }
    ColumnFamilyDescriptor family = store.getColumnFamilyDescriptor();
    String kept = family.getConfigurationValue(KEEPS_DELETES);
    if (kept == null || kept.startsWith("-") || kept.equals("0")) {
      LOG.error("{}: not repaired: `{}` is not set", store.getTableName(), KEEPS_DELETES);
      return scanner;
    }
    RegionCoprocessorEnvironment environment = context.getEnvironment();
    RegionCluster cluster = new RegionCluster(environment.getConnection(), store.getTableName());
    long held = environment.getConfiguration().getLong(HELD, USUAL_HELD);
    return new RepairScanner(
        scanner, new Repair(cluster, held), store.getTableName().getNameAsString());
  }
}
