package esker.hbase;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Set;

/** What a repair needs from the cluster. */
interface Cluster {
  /** The dataset as of now; null if there is none, or it cannot be read. */
  Definition definition();

  /** The keys of which readers delete versions of dead writers now. */
  Set<ByteBuffer> announced() throws IOException;

  /** Removes index entries, in their order; fails unless all are removed. */
  void remove(List<Entry> entries) throws IOException;

  /** Milliseconds of a clock that never goes back. */
  long clock();

  /** Milliseconds since 1970. */
  long wall();
}
