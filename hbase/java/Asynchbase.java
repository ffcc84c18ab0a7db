import com.stumbleupon.async.Deferred;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.hbase.async.AtomicIncrementRequest;
import org.hbase.async.CompareFilter.CompareOp;
import org.hbase.async.DeleteRequest;
import org.hbase.async.GetRequest;
import org.hbase.async.HBaseClient;
import org.hbase.async.KeyRegexpFilter;
import org.hbase.async.KeyValue;
import org.hbase.async.PutRequest;
import org.hbase.async.RegexStringComparator;
import org.hbase.async.Scanner;
import org.hbase.async.ValueFilter;

/**
 * asynchbase against a table {@code asynchbase} that is there and empty, with the family {@code f} and more than one region.
 *
 * <p>Usage: {@code Asynchbase QUORUM}.
 */
public final class Asynchbase {
  private static final byte[] TABLE = bytes("asynchbase");
  private static final byte[] F = bytes("f");
  private static final byte[] Q = bytes("q");
  private static final int ROWS = 500;
  private static final long WAIT_MILLIS = 30_000;

  public static void main(String[] args) {
    try {
      run(new HBaseClient(args[0]));
    } catch (Throwable error) {
      // The client's threads would go on.
      error.printStackTrace();
      System.exit(1);
    }
    System.exit(0);
  }

  private static void run(HBaseClient client) throws Exception {
    client.setFlushInterval((short) 50);
    client.ensureTableFamilyExists(TABLE, F).join(WAIT_MILLIS);
    List<Deferred<Object>> puts = new ArrayList<>();
    for (int number = 0; number < ROWS; number++) {
      puts.add(client.put(new PutRequest(TABLE, row(number), F, Q, bytes("value-" + number))));
    }
    Deferred.group(puts).join(WAIT_MILLIS);
    for (int number = 0; number < ROWS; number += 50) {
      ArrayList<KeyValue> cells = client.get(new GetRequest(TABLE, row(number))).join(WAIT_MILLIS);
      check(cells.size() == 1 && text(cells.get(0).value()).equals("value-" + number), "a get");
    }
    check(client.get(new GetRequest(TABLE, bytes("absent"))).join(WAIT_MILLIS).isEmpty(), "a get of nothing");
    check(count(client, null) == ROWS, "a scan");
    Scanner some = client.newScanner(TABLE);
    some.setFilter(new KeyRegexpFilter("row-0.7$"));
    check(count(client, some) == 0, "a filter that no key passes");
    some = client.newScanner(TABLE);
    some.setFilter(new KeyRegexpFilter("row-00.7"));
    check(count(client, some) == 10, "a filter of keys");
    some = client.newScanner(TABLE);
    some.setFilter(new ValueFilter(CompareOp.EQUAL, new RegexStringComparator("value-1[0-9]$")));
    check(count(client, some) == 10, "a filter of values");
    some = client.newScanner(TABLE);
    some.setStartKey(row(100));
    some.setStopKey(row(300));
    some.setMaxNumRows(7);
    check(count(client, some) == 200, "a part of the rows");
    for (int at = 1; at <= 5; at++) {
      long counted = client.atomicIncrement(new AtomicIncrementRequest(TABLE, row(0), F, bytes("c"), 2)).join(WAIT_MILLIS);
      check(counted == 2L * at, "an increment");
    }
    List<Deferred<Long>> buffered = new ArrayList<>();
    for (int at = 0; at < 100; at++) {
      buffered.add(client.bufferAtomicIncrement(new AtomicIncrementRequest(TABLE, row(1), F, bytes("c"), 1)));
    }
    client.flush().join(WAIT_MILLIS);
    Deferred.group(buffered).join(WAIT_MILLIS);
    check(client.atomicIncrement(new AtomicIncrementRequest(TABLE, row(1), F, bytes("c"), 0)).join(WAIT_MILLIS) == 100, "many");
    PutRequest put = new PutRequest(TABLE, row(2), F, Q, bytes("new"));
    check(client.compareAndSet(put, bytes("value-2")).join(WAIT_MILLIS), "a comparison");
    check(!client.compareAndSet(put, bytes("value-2")).join(WAIT_MILLIS), "a comparison that fails");
    check(client.atomicCreate(new PutRequest(TABLE, bytes("row-9999"), F, Q, bytes("x"))).join(WAIT_MILLIS), "a creation");
    check(!client.atomicCreate(new PutRequest(TABLE, bytes("row-9999"), F, Q, bytes("y"))).join(WAIT_MILLIS), "another");
    client.delete(new DeleteRequest(TABLE, bytes("row-9999"))).join(WAIT_MILLIS);
    client.delete(new DeleteRequest(TABLE, row(3), F, Q)).join(WAIT_MILLIS);
    check(count(client, null) == ROWS - 1, "deleted rows");
    client.shutdown().join(WAIT_MILLIS);
    System.out.println("ok asynchbase");
  }

  private static int count(HBaseClient client, Scanner given) throws Exception {
    Scanner scanner = given == null ? client.newScanner(TABLE) : given;
    int rows = 0;
    byte[] last = new byte[0];
    for (ArrayList<ArrayList<KeyValue>> some = scanner.nextRows().join(WAIT_MILLIS); some != null;
        some = scanner.nextRows().join(WAIT_MILLIS)) {
      for (ArrayList<KeyValue> row : some) {
        check(Arrays.compareUnsigned(last, row.get(0).key()) < 0, "rows are in order");
        last = row.get(0).key();
        rows++;
      }
    }
    scanner.close().join(WAIT_MILLIS);
    return rows;
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError("does not hold: " + what);
    }
  }

  private static byte[] row(int number) {
    return bytes(String.format("row-%04d", number));
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String text(byte[] value) {
    return new String(value, StandardCharsets.UTF_8);
  }
}
