package esker.hbase;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.KeyValueUtil;

/**
 * The repair of a stream of the versions of records, sorted as HBase sorts them: key by key, newest
 * first. Versions that do not count any more are left out, after their index entries have been
 * removed. A version does not count under a deletion, and under as many newer ones as are kept; it
 * stays for queries that run until the write that made it obsolete is old enough ({@link
 * Stamps#VIEW}). So no mark of the last repair is needed: what was repaired is gone.
 *
 * <p>It is for streams of all versions that have been flushed. Then the marker that a version was
 * removed is in the stream of that version, and no dead version makes another one obsolete. A
 * version that is missing for a minute cannot come ({@link Stamps#LATE}); and the keys of those that
 * a reader removes at this moment are left alone.
 *
 * <p>From the first obsolete version on, cells are held, until the entries of all obsolete versions
 * among them have been removed. If that fails, the cells are passed on with the obsolete versions,
 * and nothing else is repaired: the next compaction, or `esker repair`, finds them again.
 */
final class Repair {
  /** The definition is read again after this time, in milliseconds. */
  static final long DEFINITION_AGE = 10_000;

  private static final long NEVER = Long.MAX_VALUE;

  private final Cluster cluster;
  private final long mostHeld;

  /** What was made obsolete from this timestamp on stays. */
  private final long before;

  private Definition definition;
  private long definitionReadAt;
  private boolean isOff;

  /** A cell that is held, and what is removed with it; null for a cell that stays. */
  private static final class Held {
    final Cell cell;
    final List<Entry> removes;

    Held(Cell cell, List<Entry> removes) {
      this.cell = cell;
      this.removes = removes;
    }
  }

  private final List<Held> held = new ArrayList<>();
  private long heldBytes;

  // The key whose versions come: the timestamps of its newest versions, as many as are kept; the
  // last deletion; the version before, and whether it is removed.
  private byte[] key;
  private final Deque<Long> newest = new ArrayDeque<>();
  private long deletion;
  private Version last;
  private boolean isLastRemoved;

  /** Cells that came, versions left out, their entries, and markers that are needed no more. */
  long seen;

  long removed;
  long removedEntries;
  long removedMarkers;
  String failure;

  /** Holds cells of about `mostHeld` bytes. */
  Repair(Cluster cluster, long mostHeld) {
    this.cluster = cluster;
    this.mostHeld = mostHeld;
    before = Stamps.stamp(cluster.wall() - Stamps.VIEW);
    readDefinition();
    isOff = definition == null;
  }

  /** Takes the next cell, and adds those that are passed on to `out`. */
  void next(Cell cell, List<Cell> out) {
    seen++;
    if (isOff) {
      out.add(cell);
      return;
    }
    List<Entry> removes = removes(cell);
    if (removes == null && held.isEmpty()) {
      out.add(cell);
      return;
    }
    // The cell's memory may be used again once the caller asks for the next one.
    Cell copy = KeyValueUtil.copyToNewKeyValue(cell);
    held.add(new Held(copy, removes));
    heldBytes += copy.getSerializedSize();
    if (heldBytes >= mostHeld) {
      pass(out);
    }
  }

  /** The end of the stream. */
  void end(List<Cell> out) {
    pass(out);
  }

  /** The entries that are removed with a cell that is left out; null for one that stays. */
  private List<Entry> removes(Cell cell) {
    if (key == null || !CellUtil.matchingRows(cell, key)) {
      key = CellUtil.cloneRow(cell);
      newest.clear();
      deletion = NEVER;
      last = null;
    }
    Version version = Version.of(cell);
    if (version == null) {
      return null;
    }
    boolean isObsolete = madeObsoleteBy() < before;
    if (CellUtil.isDelete(cell)) {
      // HBase has left out the put that it hides. If that came again, it would be obsolete, or the
      // same deletion again.
      return isObsolete || version.isDeletion ? Collections.emptyList() : null;
    }
    if (version.isSame(last)) {
      return isLastRemoved ? Collections.emptyList() : null;
    }
    List<Entry> removes = isObsolete ? entries(cell, version) : null;
    last = version;
    isLastRemoved = removes != null;
    newest.addLast(version.timestamp);
    if (newest.size() > definition.kept) {
      newest.removeFirst();
    }
    if (version.isDeletion) {
      deletion = version.timestamp;
    }
    return removes;
  }

  /**
   * The write that made the next older version obsolete: the earliest deletion after it, or the
   * write that came as the last of those that are kept after it.
   */
  private long madeObsoleteBy() {
    boolean isPushed = newest.size() >= definition.kept;
    return isPushed ? Math.min(deletion, newest.getFirst()) : deletion;
  }

  /** The entries of a version; null if it is not known which it has. */
  private List<Entry> entries(Cell cell, Version version) {
    if (version.isDeletion) {
      return Collections.emptyList();
    }
    return version.timestamp < definition.indexedSince ? null : Note.entries(cell, version);
  }

  /** Passes on what is held. */
  private void pass(List<Cell> out) {
    if (held.isEmpty()) {
      return;
    }
    Set<ByteBuffer> left = removeEntries();
    for (Held next : held) {
      if (!isRemoved(next, left)) {
        out.add(next.cell);
      } else if (CellUtil.isDelete(next.cell)) {
        removedMarkers++;
      } else {
        removed++;
        removedEntries += next.removes.size();
      }
    }
    held.clear();
    heldBytes = 0;
  }

  private static boolean isRemoved(Held held, Set<ByteBuffer> left) {
    return held.removes != null && left != null && !left.contains(key(held.cell));
  }

  /** The key of a cell; the first byte of a row is a hash of it. */
  private static ByteBuffer key(Cell cell) {
    byte[] row = CellUtil.cloneRow(cell);
    return ByteBuffer.wrap(row, 1, row.length - 1).slice();
  }

  /**
   * Removes the entries of what is held, sorted by partition; returns the keys that are left alone,
   * and null if nothing may be removed.
   */
  private Set<ByteBuffer> removeEntries() {
    if (!isDefinitionValid()) {
      return null;
    }
    try {
      Set<ByteBuffer> left = cluster.announced();
      List<Entry> entries = new ArrayList<>();
      for (Held next : held) {
        if (isRemoved(next, left)) {
          entries.addAll(next.removes);
        }
      }
      Collections.sort(entries);
      cluster.remove(entries);
      return left;
    } catch (IOException e) {
      isOff = true;
      failure = e.toString();
      return null;
    }
  }

  /**
   * True if what was found obsolete by the definition may be removed. Changes of an index are
   * announced a minute before they take effect.
   */
  private boolean isDefinitionValid() {
    if (cluster.clock() - definitionReadAt < DEFINITION_AGE) {
      return true;
    }
    Definition known = definition;
    readDefinition();
    if (definition == null) {
      isOff = true;
      failure = "the catalog cannot be read";
    }
    return known.isSame(definition);
  }

  private void readDefinition() {
    definitionReadAt = cluster.clock();
    definition = cluster.definition();
    // A number of versions that has changed counts from the next key on.
    key = null;
  }

  @Override
  public String toString() {
    String text =
        String.format(
            "%d cells, %d versions and %d index entries removed, %d deletions forgotten",
            seen, removed, removedEntries, removedMarkers);
    return failure == null ? text : text + "; stopped: " + failure;
  }
}
