package esker.hbase;

import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.util.Collections;
import java.util.List;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException;
import org.apache.hadoop.hbase.client.Row;
import org.junit.Test;

public class RegionClusterTest {
  private static IOException ofMany(List<Throwable> causes) {
    List<Row> rows = Collections.nCopies(causes.size(), new Delete(new byte[] {1}));
    List<String> hosts = Collections.nCopies(causes.size(), "host:1");
    return new RetriesExhaustedWithDetailsException(causes, rows, hosts);
  }

  /** The deletion of several rows wraps the error of each: a dropped index ended all repair. */
  @Test
  public void anIndexIsGoneIfEveryRowSaysSo() {
    IOException gone = new TableNotFoundException("t");
    IOException other = new IOException("too busy");
    assertTrue(RegionCluster.isNoTable(gone));
    assertTrue(RegionCluster.isNoTable(ofMany(List.of(gone))));
    assertTrue(RegionCluster.isNoTable(ofMany(List.of(gone, gone))));
    assertFalse(RegionCluster.isNoTable(other));
    assertFalse(RegionCluster.isNoTable(ofMany(List.of(gone, other))));
    assertFalse(RegionCluster.isNoTable(ofMany(List.of())));
  }
}
