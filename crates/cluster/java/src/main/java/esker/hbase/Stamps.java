package esker.hbase;

/** Timestamps: milliseconds since 2020, then 15 bits that make them different. */
final class Stamps {
  /** 2020-01-01, in milliseconds since 1970. */
  private static final long EPOCH = 1_577_836_800_000L;

  private static final int BITS = 15;

  /**
   * A query sees the records as of its start for a minute, and clocks differ by two seconds: what
   * was made obsolete later than this, in milliseconds, stays.
   */
  static final long VIEW = 62_000;

  /**
   * A writer that takes longer than 20 s is not acknowledged, and after 60 s its index entry may be
   * removed. A put that comes between the two is refused: a version that is missing after 60 s is
   * missing for ever.
   */
  static final long LATE = 50_000;

  private Stamps() {}

  /** The first timestamp of a millisecond since 1970. */
  static long stamp(long millis) {
    return Math.max(0, millis - EPOCH) << BITS;
  }

  /** The millisecond of a timestamp, since 1970. */
  static long millis(long timestamp) {
    return (timestamp >>> BITS) + EPOCH;
  }
}
