import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.AsyncTableRegionLocator;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Uncached lookups by the Java client of HBase, to compare with those of metaclient. Run from its source.
 *
 * <p>{@code java -cp "LIB/*" MetaLookups.java HOST:PORT TABLE MODE THREADS SLOT_MS ROWS}; HOST:PORT is ZooKeeper's, MODE
 * is None, HedgedRead or LoadBalance, ROWS a comma-separated list. Prints {@code {"ready": true}} after a first lookup per
 * thread, and then for each slot of time a JSON line: how many lookups succeeded and failed in it, and how many
 * milliseconds ago the slowest of those that are still open began. Ends when its standard input does.
 */
public class MetaLookups {
  private static final int SLOTS_MAX = 100_000;

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    int colon = args[0].lastIndexOf(':');
    conf.set("hbase.zookeeper.quorum", args[0].substring(0, colon));
    conf.set("hbase.zookeeper.property.clientPort", args[0].substring(colon + 1));
    conf.set("hbase.locator.meta.replicas.mode", args[2]);
    TableName table = TableName.valueOf(args[1]);
    int threads = Integer.parseInt(args[3]);
    long slotNs = TimeUnit.MILLISECONDS.toNanos(Integer.parseInt(args[4]));
    String[] rows = args[5].split(",");

    AsyncConnection connection = ConnectionFactory.createAsyncConnection(conf).get();
    AsyncTableRegionLocator locator = connection.getRegionLocator(table);
    for (int at = 0; at < threads; at++) {
      locator.getRegionLocation(Bytes.toBytes(rows[at % rows.length]), true).get(60, TimeUnit.SECONDS);
    }
    AtomicIntegerArray done = new AtomicIntegerArray(SLOTS_MAX);
    AtomicIntegerArray failed = new AtomicIntegerArray(SLOTS_MAX);
    long[] begunNs = new long[threads];
    System.out.println("{\"ready\": true}");
    System.out.flush();
    long startNs = System.nanoTime();
    for (int number = 0; number < threads; number++) {
      int own = number;
      Thread worker = new Thread(() -> look(locator, rows, own, begunNs, startNs, slotNs, done, failed));
      worker.setDaemon(true);
      worker.start();
    }
    Thread printer = new Thread(() -> print(begunNs, startNs, slotNs, done, failed));
    printer.setDaemon(true);
    printer.start();
    while (System.in.read() >= 0) {
      // no input is expected; the end of standard input ends the run
    }
    System.exit(0);
  }

  private static void look(AsyncTableRegionLocator locator, String[] rows, int own, long[] begunNs, long startNs,
      long slotNs, AtomicIntegerArray done, AtomicIntegerArray failed) {
    for (int at = own; true; at++) {
      begunNs[own] = System.nanoTime();
      AtomicIntegerArray counts = done;
      try {
        locator.getRegionLocation(Bytes.toBytes(rows[at % rows.length]), true).get();
      } catch (ExecutionException error) {
        counts = failed;
      } catch (InterruptedException error) {
        return;
      }
      int slot = (int) ((System.nanoTime() - startNs) / slotNs);
      if (slot >= SLOTS_MAX) {
        return;
      }
      counts.incrementAndGet(slot);
    }
  }

  private static void print(long[] begunNs, long startNs, long slotNs, AtomicIntegerArray done,
      AtomicIntegerArray failed) {
    for (int slot = 0; slot < SLOTS_MAX; slot++) {
      long endNs = startNs + (slot + 1) * slotNs;
      try {
        long leftNs;
        while ((leftNs = endNs - System.nanoTime()) > 0) {
          TimeUnit.NANOSECONDS.sleep(leftNs);
        }
      } catch (InterruptedException error) {
        return;
      }
      long oldestNs = 0;
      for (long begun : begunNs) {
        oldestNs = Math.max(oldestNs, System.nanoTime() - begun);
      }
      System.out.println("{\"slot\": " + slot + ", \"lookups\": " + done.get(slot) + ", \"failed\": " + failed.get(slot)
          + ", \"open_ms\": " + TimeUnit.NANOSECONDS.toMillis(oldestNs) + "}");
      System.out.flush();
    }
  }
}
