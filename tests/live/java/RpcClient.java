import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Consistency;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * HBase's own client through the registry by RPC: {@code RpcClient.java HOST:PORT LOOKUPS}. Prints a line a step, or ends
 * with the first answer that is not the right one.
 */
public class RpcClient {
  private static final byte[] F = Bytes.toBytes("f");
  private static final byte[] Q = Bytes.toBytes("q");

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.RpcConnectionRegistry");
    conf.set("hbase.client.bootstrap.servers", args[0]);
    conf.set("hbase.locator.meta.replicas.mode", "LoadBalance");
    conf.setInt("hbase.client.retries.number", 6);
    conf.setInt("hbase.client.operation.timeout", 60_000);
    try (Connection connection = ConnectionFactory.createConnection(conf); Admin admin = connection.getAdmin()) {
      tables(admin);
      TableName name = TableName.valueOf("java");
      try (Table table = connection.getTable(name)) {
        rows(table);
        scans(table);
        moves(connection, admin, name, table);
      }
      // Of a region that was found elsewhere than meta's copies said, this connection asks the primary for a while.
      try (Connection other = ConnectionFactory.createConnection(conf)) {
        lookups(other, name, Integer.parseInt(args[1]));
      }
      errors(connection);
      admin.disableTable(name);
      admin.deleteTable(name);
      check(!admin.tableExists(name), "the table is gone");
      say("dropped");
    }
    System.exit(0);
  }

  private static void tables(Admin admin) throws Exception {
    TableName name = TableName.valueOf("java");
    byte[][] splits = {Bytes.toBytes("g"), Bytes.toBytes("p")};
    admin.createTable(TableDescriptorBuilder.newBuilder(name).setRegionReplication(2)
        .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(F).setMaxVersions(3).build()).build(), splits);
    check(admin.tableExists(name), "the table is there");
    check(admin.isTableEnabled(name), "it is enabled");
    check(primaries(admin, name).size() == 3, "three regions: " + admin.getRegions(name));
    check(admin.getDescriptor(name).getColumnFamily(F).getMaxVersions() == 3, "versions");
    check(admin.getDescriptor(name).getRegionReplication() == 2, "replicas");
    admin.createNamespace(NamespaceDescriptor.create("ns").build());
    check(Arrays.asList(admin.listNamespaces()).contains("ns"), "the namespace");
    admin.deleteNamespace("ns");
    check(admin.getClusterMetrics().getLiveServerMetrics().size() >= 3, "live servers");
    say("tables");
  }

  private static void rows(Table table) throws Exception {
    table.put(new Put(Bytes.toBytes("a")).addColumn(F, Q, Bytes.toBytes("1")));
    check(value(table.get(new Get(Bytes.toBytes("a")))).equals("1"), "a put is read");
    check(!table.exists(new Get(Bytes.toBytes("none"))), "an absent row");
    table.increment(new Increment(Bytes.toBytes("n")).addColumn(F, Q, 5));
    Result counted = table.increment(new Increment(Bytes.toBytes("n")).addColumn(F, Q, 2));
    check(Bytes.toLong(counted.getValue(F, Q)) == 7, "an increment");
    Result appended = table.append(new Append(Bytes.toBytes("a")).addColumn(F, Q, Bytes.toBytes("2")));
    check(value(appended).equals("12"), "an append");
    boolean applied = table.checkAndMutate(Bytes.toBytes("a"), F).qualifier(Q)
        .ifMatches(CompareOperator.EQUAL, Bytes.toBytes("12"))
        .thenPut(new Put(Bytes.toBytes("a")).addColumn(F, Q, Bytes.toBytes("checked")));
    check(applied, "a check that holds");
    check(!table.checkAndMutate(Bytes.toBytes("a"), F).qualifier(Q).ifNotExists()
        .thenPut(new Put(Bytes.toBytes("a")).addColumn(F, Q, Bytes.toBytes("no"))), "a check that does not");
    RowMutations both = new RowMutations(Bytes.toBytes("m"));
    both.add(new Put(Bytes.toBytes("m")).addColumn(F, Q, Bytes.toBytes("x")));
    both.add(new Delete(Bytes.toBytes("m")).addColumns(F, Bytes.toBytes("other")));
    table.mutateRow(both);
    check(value(table.get(new Get(Bytes.toBytes("m")))).equals("x"), "row mutations");
    List<Put> puts = new ArrayList<>();
    List<Get> gets = new ArrayList<>();
    for (int i = 0; i < 300; i++) {
      byte[] row = Bytes.toBytes((char) ('a' + i % 26) + String.format("%05d", i));
      puts.add(new Put(row).addColumn(F, Q, Bytes.toBytes("v" + i)).addColumn(F, Bytes.toBytes("n"), Bytes.toBytes(i)));
      gets.add(new Get(row));
    }
    table.put(puts);
    Result[] found = table.get(gets);
    for (int i = 0; i < 300; i++) {
      check(value(found[i]).equals("v" + i), "row " + i + " of a batch");
    }
    table.delete(new Delete(Bytes.toBytes("a")));
    check(table.get(new Get(Bytes.toBytes("a"))).isEmpty(), "a delete");
    Get timeline = new Get(gets.get(0).getRow()).setConsistency(Consistency.TIMELINE);
    timeline.setReplicaId(1);
    check(table.get(timeline).isStale(), "a replica's answer is stale");
    say("rows");
  }

  private static void scans(Table table) throws Exception {
    check(count(table, new Scan().setCaching(50)) == 302, "all rows of three regions");
    check(count(table, new Scan().setReversed(true).setCaching(7).setLimit(100)) == 100, "in reverse, with a limit");
    Scan range = new Scan().withStartRow(Bytes.toBytes("b")).withStopRow(Bytes.toBytes("d"));
    check(count(table, range) == 24, "a range");
    Scan filtered = new Scan().setFilter(
        new SingleColumnValueFilter(F, Bytes.toBytes("n"), CompareOperator.LESS, Bytes.toBytes(10)));
    filtered.setCaching(3);
    check(count(table, filtered) >= 10, "a filter");
    check(count(table, new Scan().setBatch(1).setMaxResultSize(200)) >= 600, "in pieces");
    say("scans");
  }

  private static void moves(Connection connection, Admin admin, TableName name, Table table) throws Exception {
    RegionInfo first = primaries(admin, name).get(0);
    String from;
    try (RegionLocator locator = connection.getRegionLocator(name)) {
      from = locator.getRegionLocation(Bytes.toBytes("b")).getServerName().toString();
    }
    admin.move(first.getEncodedNameAsBytes());
    check(value(table.get(new Get(Bytes.toBytes("b00001")))).equals("v1"), "a row of a moved region (from " + from + ")");
    admin.splitRegionAsync(first.getEncodedNameAsBytes(), Bytes.toBytes("d")).get();
    check(count(table, new Scan()) == 302, "all rows after a split");
    check(primaries(admin, name).size() == 4, "four regions: " + admin.getRegions(name));
    admin.flush(name);
    admin.compact(name);
    say("moves");
  }

  private static void lookups(Connection connection, TableName name, int lookups) throws Exception {
    try (RegionLocator locator = connection.getRegionLocator(name)) {
      for (int i = 0; i < lookups; i++) {
        locator.getRegionLocation(Bytes.toBytes("b"), true);
      }
    }
    say("lookups");
  }

  private static void errors(Connection connection) throws Exception {
    try (Table missing = connection.getTable(TableName.valueOf("missing"))) {
      missing.get(new Get(Bytes.toBytes("a")));
      throw new IllegalStateException("a table that is not there was read");
    } catch (TableNotFoundException expected) {
      say("errors");
    }
  }

  private static List<RegionInfo> primaries(Admin admin, TableName name) throws Exception {
    List<RegionInfo> found = new ArrayList<>();
    for (RegionInfo region : admin.getRegions(name)) {
      if (region.getReplicaId() == RegionInfo.DEFAULT_REPLICA_ID) {
        found.add(region);
      }
    }
    return found;
  }

  private static int count(Table table, Scan scan) throws Exception {
    int rows = 0;
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result ignored : scanner) {
        rows++;
      }
    }
    return rows;
  }

  private static String value(Result result) {
    return Bytes.toString(result.getValue(F, Q));
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new IllegalStateException("not as expected: " + what);
    }
  }

  private static void say(String step) {
    System.out.println(step);
    System.out.flush();
  }
}
