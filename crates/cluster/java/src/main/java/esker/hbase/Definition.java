package esker.hbase;

import java.util.Map;
import org.apache.hbase.thirdparty.com.google.gson.JsonElement;
import org.apache.hbase.thirdparty.com.google.gson.JsonObject;
import org.apache.hbase.thirdparty.com.google.gson.JsonParseException;
import org.apache.hbase.thirdparty.com.google.gson.JsonParser;

/** What a repair must know of a dataset, as of a version of the catalog. */
final class Definition {
  /** How many versions of a record count. */
  final int kept;

  /** Versions from this timestamp on were written with entries in all indexes. */
  final long indexedSince;

  Definition(int kept, long indexedSince) {
    this.kept = kept;
    this.indexedSince = indexedSince;
  }

  boolean isSame(Definition other) {
    return other != null && kept == other.kept && indexedSince == other.indexedSince;
  }

  /** The dataset whose records are in a table; null if the catalog has none. */
  static Definition read(String catalog, String table) {
    try {
      JsonObject datasets =
          JsonParser.parseString(catalog).getAsJsonObject().getAsJsonObject("datasets");
      for (Map.Entry<String, JsonElement> known : datasets.entrySet()) {
        JsonObject dataset = known.getValue().getAsJsonObject();
        if (("esker_" + dataset.get("id").getAsLong()).equals(table)) {
          return read(dataset);
        }
      }
      return null;
    } catch (JsonParseException | IllegalStateException | NullPointerException
        | UnsupportedOperationException | NumberFormatException e) {
      return null;
    }
  }

  private static Definition read(JsonObject dataset) {
    int kept = dataset.getAsJsonObject("def").get("versions").getAsInt();
    long since = 0;
    for (Map.Entry<String, JsonElement> index : dataset.getAsJsonObject("indexes").entrySet()) {
      since = Math.max(since, index.getValue().getAsJsonObject().get("since").getAsLong());
    }
    return new Definition(Math.max(1, kept), since);
  }
}
