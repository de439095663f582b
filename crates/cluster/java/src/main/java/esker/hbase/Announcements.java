package esker.hbase;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Set;
import org.apache.hbase.thirdparty.com.google.gson.JsonArray;
import org.apache.hbase.thirdparty.com.google.gson.JsonElement;
import org.apache.hbase.thirdparty.com.google.gson.JsonParseException;
import org.apache.hbase.thirdparty.com.google.gson.JsonParser;

/** What readers announce before they delete versions of dead writers for good. */
final class Announcements {
  private Announcements() {}

  /** Adds the keys of an announcement, `{"versions": [[[bytes of the key], timestamp], ...]}`. */
  static void read(String text, Set<ByteBuffer> keys) throws IOException {
    try {
      JsonArray versions = JsonParser.parseString(text).getAsJsonObject().getAsJsonArray("versions");
      for (JsonElement version : versions) {
        JsonArray bytes = version.getAsJsonArray().get(0).getAsJsonArray();
        byte[] key = new byte[bytes.size()];
        for (int i = 0; i < key.length; i++) {
          key[i] = (byte) bytes.get(i).getAsInt();
        }
        keys.add(ByteBuffer.wrap(key));
      }
    } catch (JsonParseException | IllegalStateException | NullPointerException
        | IndexOutOfBoundsException | UnsupportedOperationException | NumberFormatException e) {
      throw new IOException("an announcement cannot be read", e);
    }
  }
}
