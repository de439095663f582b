package esker.hbase;

import static esker.hbase.Cells.deletion;
import static esker.hbase.Cells.marker;
import static esker.hbase.Cells.plain;
import static esker.hbase.Cells.record;
import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.util.Bytes;
import org.junit.Test;

public class RepairTest {
  /** A cluster that notes what is removed. */
  private static class Noted implements Cluster {
    Definition definition = new Definition(1, 0);
    List<String> removed = new ArrayList<>();
    int calls;
    int failsAt = -1;
    long now;

    @Override
    public Definition definition() {
      return definition;
    }

    @Override
    public void remove(List<Entry> entries) throws IOException {
      if (calls++ == failsAt) {
        throw new IOException("the index does not answer");
      }
      for (Entry entry : entries) {
        int end = 8 + 4;
        String column = Bytes.toString(entry.column, 0, entry.column.length - end - 1);
        removed.add(entry.table + " " + column + " " + entry.timestamp);
      }
    }

    @Override
    public long clock() {
      return now;
    }
  }

  private final Noted cluster = new Noted();

  private List<Cell> repaired(long held, Cell... cells) {
    Repair repair = new Repair(cluster, held);
    List<Cell> out = new ArrayList<>();
    for (Cell cell : cells) {
      repair.next(cell, out);
    }
    repair.end(out);
    return out;
  }

  private static void assertSame(List<Cell> found, Cell... expected) {
    assertEquals(Arrays.asList(expected).toString(), found.toString());
  }

  @Test
  public void theNewestVersionStaysAndEntriesOfOthersGo() {
    Cell newest = record("k", 9, "b");
    Cell other = record("l", 3, "c");
    assertSame(repaired(1000, newest, record("k", 7, "a", "z"), other), newest, other);
    assertEquals("[_i a 7, _i z 7]", cluster.removed.toString());
  }

  @Test
  public void asManyVersionsStayAsAreKept() {
    cluster.definition = new Definition(2, 0);
    Cell a = record("k", 9, "a");
    Cell b = record("k", 8, "b");
    assertSame(repaired(1000, a, b, record("k", 7, "c"), record("k", 6, "d")), a, b);
    assertEquals("[_i c 7, _i d 6]", cluster.removed.toString());
  }

  @Test
  public void nothingCountsUnderADeletion() {
    cluster.definition = new Definition(5, 0);
    Cell gone = deletion("k", 9);
    assertSame(repaired(1000, gone, record("k", 8, "a"), deletion("k", 7)), gone);
    assertEquals("[_i a 8]", cluster.removed.toString());
  }

  @Test
  public void aVersionThatWasRemovedForGoodMakesNoOtherObsolete() {
    // HBase has left out the put that the marker hides.
    Cell dead = marker("k", 9, false);
    Cell alive = record("k", 7, "a");
    assertSame(repaired(1000, dead, alive), dead, alive);
    assertTrue(cluster.removed.isEmpty());
  }

  @Test
  public void markersAreForgottenOnceTheirVersionsCannotCountAnyMore() {
    Cell newest = record("k", 9, "a");
    Cell dead = marker("l", 5, false);
    Cell[] cells = {
      newest, marker("k", 7, false), marker("k", 6, true), dead, marker("m", 5, true)
    };
    assertSame(repaired(1000, cells), newest, dead);
  }

  @Test
  public void aVersionWhoseEntriesAreNotKnownStays() {
    cluster.definition = new Definition(1, 5);
    Cell newest = record("k", 9, "a");
    Cell withoutNote = plain("k", 8);
    // An index came later: the note lacks the entry that a fill has added.
    Cell beforeIndex = record("k", 4, "c");
    assertSame(
        repaired(1000, newest, withoutNote, record("k", 7, "b"), beforeIndex),
        newest, withoutNote, beforeIndex);
    assertEquals("[_i b 7]", cluster.removed.toString());
  }

  @Test
  public void ofEqualCellsAllStayOrGo() {
    Cell newest = record("k", 9, "a");
    assertSame(repaired(1000, newest, newest, record("k", 8, "b"), record("k", 8, "b")), newest, newest);
    assertEquals("[_i b 8]", cluster.removed.toString());
  }

  @Test
  public void ifEntriesCannotBeRemovedAllIsPassedOnInOrder() {
    cluster.failsAt = 1;
    List<Cell> cells = new ArrayList<>();
    for (int key = 0; key < 100; key++) {
      cells.add(record(String.format("k%03d", key), 9, "a"));
      cells.add(record(String.format("k%03d", key), 8, "b"));
    }
    List<Cell> out = repaired(1500, cells.toArray(new Cell[0]));
    assertEquals(2, cluster.calls);
    assertEquals(200 - cluster.removed.size(), out.size());
    assertTrue(!cluster.removed.isEmpty());
    List<String> before = new ArrayList<>();
    cells.forEach(cell -> before.add(cell.toString()));
    int at = -1;
    for (Cell cell : out) {
      int next = before.indexOf(cell.toString());
      assertTrue(next > at);
      at = next;
    }
  }

  @Test
  public void removalsAreSortedByPartition() {
    repaired(1 << 20,
        record("k", 9, "x"), record("k", 8, "c"), record("l", 9, "x"), record("l", 8, "a"),
        record("m", 9, "x"), record("m", 8, "b"));
    assertEquals("[_i a 8, _i b 8, _i c 8]", cluster.removed.toString());
    assertEquals(1, cluster.calls);
  }

  @Test
  public void whatIsFoundByAnOldDefinitionIsNotRemoved() {
    Cell newest = record("k", 9, "a");
    Cell older = record("k", 8, "b");
    Repair repair = new Repair(cluster, 1 << 20);
    List<Cell> out = new ArrayList<>();
    repair.next(newest, out);
    repair.next(older, out);
    cluster.now = Repair.DEFINITION_AGE;
    cluster.definition = new Definition(2, 0);
    repair.end(out);
    assertSame(out, newest, older);
    assertTrue(cluster.removed.isEmpty());
  }

  @Test
  public void withoutADefinitionNothingIsRepaired() {
    cluster.definition = null;
    Cell newest = record("k", 9, "a");
    Cell older = record("k", 8, "b");
    assertSame(repaired(1000, newest, older), newest, older);
  }

  @Test
  public void theColumnOfAnEntryEndsWithTimestampKeyAndLength() {
    Cell cell = record("key", 7, "token");
    List<Entry> entries = Note.entries(cell, Version.of(cell));
    byte[] end = Bytes.add(Bytes.toBytes(~7L), Bytes.toBytes("key"), Bytes.toBytes(3));
    assertArrayEquals(Bytes.add(Bytes.toBytes("token"), end), entries.get(0).column);
    assertArrayEquals(Bytes.toBytes("row of token"), entries.get(0).row);
  }

  @Test
  public void malformedNotesAreRefused() {
    Random random = new Random(7);
    Cell cell = record("key", 7, "token", "other");
    for (int n = 0; n < 10_000; n++) {
      byte[] value = CellUtil.cloneValue(cell);
      value[1 + random.nextInt(value.length - 1)] = (byte) random.nextInt(256);
      byte[] cut = Arrays.copyOf(value, 1 + random.nextInt(value.length));
      for (byte[] bytes : new byte[][] {value, cut}) {
        Cell changed =
            new org.apache.hadoop.hbase.KeyValue(
                CellUtil.cloneRow(cell), Cells.FAMILY, CellUtil.cloneQualifier(cell), 7, bytes);
        Note.entries(changed, Version.of(changed));
      }
    }
  }

  /** Random streams against what is left by the definition, with any size of what is held. */
  @Test
  public void whatIsLeftIsWhatCounts() {
    for (int seed = 0; seed < 300; seed++) {
      Random random = new Random(seed);
      cluster.definition = new Definition(1 + random.nextInt(3), 0);
      cluster.removed.clear();
      List<Cell> cells = new ArrayList<>();
      List<Cell> expected = new ArrayList<>();
      List<String> entries = new ArrayList<>();
      for (int key = 0; key < 20; key++) {
        int newer = 0;
        boolean isDeleted = false;
        for (int at = 20; at > 0; at -= 1 + random.nextInt(9)) {
          boolean isDeletion = random.nextInt(5) == 0;
          String name = String.format("k%02d", key);
          Cell cell = isDeletion ? deletion(name, at) : record(name, at, "t" + at);
          cells.add(cell);
          if (!isDeleted && newer < cluster.definition.kept) {
            expected.add(cell);
          } else if (!isDeletion) {
            entries.add("_i t" + at);
          }
          newer++;
          isDeleted |= isDeletion;
        }
      }
      List<Cell> out = repaired(1 + random.nextInt(2000), cells.toArray(new Cell[0]));
      assertEquals("seed " + seed, expected.toString(), out.toString());
      assertEquals("seed " + seed, entries.size(), cluster.removed.size());
    }
  }

  @Test
  public void theCatalogIsRead() {
    String catalog =
        "{\"version\":3,\"next_id\":7,\"datasets\":{\"a\":{\"id\":1,\"def\":{\"versions\":3},"
            + "\"indexes\":{\"0\":{\"table\":0,\"since\":0,\"is_ready\":true,\"layout\":{}},"
            + "\"2\":{\"table\":6,\"since\":50,\"is_ready\":false,\"layout\":{}}}}}}";
    Definition found = Definition.read(catalog, "esker_1");
    assertNotNull(found);
    assertEquals(3, found.kept);
    assertEquals(50, found.indexedSince);
    for (String text : new String[] {"", "{", "[]", "{}", "{\"datasets\":{\"a\":{\"id\":1}}}"}) {
      assertEquals(null, Definition.read(text, "esker_1"));
    }
    assertEquals(null, Definition.read(catalog, "esker_2"));
    assertEquals(Collections.emptyList(), cluster.removed);
  }
}
