package esker.hbase;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.regionserver.InternalScanner;
import org.apache.hadoop.hbase.regionserver.ScannerContext;
import org.apache.hadoop.hbase.regionserver.Shipper;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The scanner of a compaction, repaired. */
final class RepairScanner implements InternalScanner, Shipper {
  private static final Logger LOG = LoggerFactory.getLogger(RepairScanner.class);

  private final InternalScanner inner;
  private final Repair repair;
  private final String table;
  private final List<Cell> read = new ArrayList<>();

  RepairScanner(InternalScanner inner, Repair repair, String table) {
    this.inner = inner;
    this.repair = repair;
    this.table = table;
  }

  @Override
  public boolean next(List<Cell> out, ScannerContext context) throws IOException {
    read.clear();
    boolean hasMore = inner.next(read, context);
    for (Cell cell : read) {
      repair.next(cell, out);
    }
    if (!hasMore) {
      repair.end(out);
    }
    return hasMore;
  }

  @Override
  public void shipped() throws IOException {
    if (inner instanceof Shipper) {
      ((Shipper) inner).shipped();
    }
  }

  @Override
  public void close() throws IOException {
    LOG.info("{}: compaction of {}", table, repair);
    inner.close();
  }
}
