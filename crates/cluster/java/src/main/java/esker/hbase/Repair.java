package esker.hbase;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.KeyValueUtil;

/**
 * The repair of a stream of the versions of records, sorted as HBase sorts them: key by key, newest
 * first. Versions that do not count any more are left out, after their index entries have been
 * removed. A version does not count under a deletion, and under as many newer ones as are kept.
 *
 * <p>It is for streams of all versions that have been flushed. Then the marker that a version was
 * removed for good is in the stream of that version, or later than it, so that no dead version
 * makes another one obsolete.
 *
 * <p>From the first obsolete version on, cells are held, until the entries of all obsolete versions
 * among them have been removed. If that fails, the cells are passed on with the obsolete versions,
 * and nothing else is repaired: the next compaction, or `esker repair`, finds them again.
 */
final class Repair {
  /** The definition is read again after this time, in milliseconds. */
  static final long DEFINITION_AGE = 10_000;

  private final Cluster cluster;
  private final long mostHeld;

  private Definition definition;
  private long definitionReadAt;
  private boolean isOff;

  private final List<Cell> held = new ArrayList<>();
  private final List<Cell> obsolete = new ArrayList<>();
  private final List<Entry> entries = new ArrayList<>();
  private long heldBytes;

  // The key whose versions come.
  private byte[] key;
  private int newer;
  private boolean isDeleted;
  private Version last;
  private boolean isLastObsolete;

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
    boolean isDropped = isDropped(cell);
    if (!isDropped && obsolete.isEmpty()) {
      out.add(cell);
      return;
    }
    // The cell's memory may be used again once the caller asks for the next one.
    Cell copy = KeyValueUtil.copyToNewKeyValue(cell);
    held.add(copy);
    if (isDropped) {
      obsolete.add(copy);
    }
    heldBytes += copy.getSerializedSize();
    if (heldBytes >= mostHeld) {
      pass(out);
    }
  }

  /** The end of the stream. */
  void end(List<Cell> out) {
    pass(out);
  }

  /** True for a cell that is left out once its entries are removed. */
  private boolean isDropped(Cell cell) {
    if (key == null || !CellUtil.matchingRows(cell, key)) {
      key = CellUtil.cloneRow(cell);
      newer = 0;
      isDeleted = false;
      last = null;
    }
    Version version = Version.of(cell);
    if (version == null) {
      return false;
    }
    boolean isObsolete = isDeleted || newer >= definition.kept;
    if (CellUtil.isDelete(cell)) {
      // The put that it hides was left out by HBase. If it came again, it would be obsolete, or the
      // same deletion again.
      return isObsolete || version.isDeletion;
    }
    if (version.isSame(last)) {
      return isLastObsolete;
    }
    last = version;
    isLastObsolete = isObsolete && hasEntriesNoted(cell, version);
    newer++;
    isDeleted |= version.isDeletion;
    return isLastObsolete;
  }

  /** Notes the entries of an obsolete version; false if it is not known which it has. */
  private boolean hasEntriesNoted(Cell cell, Version version) {
    if (version.isDeletion) {
      return true;
    }
    if (version.timestamp < definition.indexedSince) {
      return false;
    }
    List<Entry> own = Note.entries(cell, version);
    if (own == null) {
      return false;
    }
    entries.addAll(own);
    return true;
  }

  /** Passes on what is held. */
  private void pass(List<Cell> out) {
    if (obsolete.isEmpty()) {
      return;
    }
    boolean isDone = isDefinitionValid() && removeEntries();
    int next = 0;
    for (Cell cell : held) {
      boolean isObsolete = next < obsolete.size() && obsolete.get(next) == cell;
      next += isObsolete ? 1 : 0;
      if (!isObsolete || !isDone) {
        out.add(cell);
      } else if (CellUtil.isDelete(cell)) {
        removedMarkers++;
      } else {
        removed++;
      }
    }
    held.clear();
    obsolete.clear();
    entries.clear();
    heldBytes = 0;
  }

  private boolean removeEntries() {
    Collections.sort(entries);
    try {
      cluster.remove(entries);
    } catch (IOException e) {
      isOff = true;
      failure = e.toString();
      return false;
    }
    removedEntries += entries.size();
    return true;
  }

  /**
   * True if what was found obsolete by the definition may be removed. Changes of an index are
   * announced a minute before they take effect.
   */
  private boolean isDefinitionValid() {
    if (cluster.clock() - definitionReadAt < DEFINITION_AGE) {
      return true;
    }
    Definition before = definition;
    readDefinition();
    if (definition == null) {
      isOff = true;
      failure = "the catalog cannot be read";
    }
    return before.isSame(definition);
  }

  private void readDefinition() {
    definitionReadAt = cluster.clock();
    definition = cluster.definition();
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
