package esker.hbase;

import java.io.IOException;
import java.util.List;

/** What a repair needs from the cluster. */
interface Cluster {
  /** The dataset as of now; null if there is none, or it cannot be read. */
  Definition definition();

  /** Removes index entries, in their order; fails unless all are removed. */
  void remove(List<Entry> entries) throws IOException;

  /** Milliseconds of a clock that never goes back. */
  long clock();
}
