import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableName;
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
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.filter.PrefixFilter;
import org.apache.hadoop.hbase.thrift.generated.AlreadyExists;
import org.apache.hadoop.hbase.thrift.generated.BatchMutation;
import org.apache.hadoop.hbase.thrift.generated.ColumnDescriptor;
import org.apache.hadoop.hbase.thrift.generated.Hbase;
import org.apache.hadoop.hbase.thrift.generated.IOError;
import org.apache.hadoop.hbase.thrift.generated.IllegalArgument;
import org.apache.hadoop.hbase.thrift.generated.Mutation;
import org.apache.hadoop.hbase.thrift.generated.TRowResult;
import org.apache.hadoop.hbase.thrift.generated.TScan;
import org.apache.hadoop.hbase.thrift2.client.ThriftConnection;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.thrift.TConfiguration;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.protocol.TCompactProtocol;
import org.apache.thrift.protocol.TProtocol;
import org.apache.thrift.transport.TSocket;
import org.apache.thrift.transport.TTransport;
import org.apache.thrift.transport.layered.TFramedTransport;

/**
 * HBase's two Java Thrift clients against a gateway: HOST THRIFT1_PORT THRIFT2_PORT. Prints a word for each part that
 * went well; anything else ends it with an exception. Not asked for, because HBase's own gateway and client cannot: a
 * limit (the client opens a new scan for each page) and a check for absence (a null pointer in the gateway).
 */
public class ThriftClients {
  private static final byte[] CF = b("cf");
  private static final byte[] Q = b("q");

  public static void main(String[] args) throws Exception {
    thrift1(args[0], Integer.parseInt(args[1]));
    thrift2(args[0], Integer.parseInt(args[2]));
    System.exit(0); // Hadoop leaves threads behind
  }

  private static byte[] b(String text) {
    return Bytes.toBytes(text);
  }

  private static ByteBuffer buffer(String text) {
    return ByteBuffer.wrap(b(text));
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new IllegalStateException("not so: " + what);
    }
  }

  // -- Thrift 2: org.apache.hadoop.hbase.thrift2.client, a Connection like any other

  private static void thrift2(String host, int port) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.client.connection.impl", ThriftConnection.class.getName());
    conf.set("hbase.thrift.server.name", host);
    conf.setInt("hbase.thrift.server.port", port);
    try (Connection connection = ConnectionFactory.createConnection(conf)) {
      TableName name = TableName.valueOf("java");
      try (Admin admin = connection.getAdmin()) {
        admin(admin, name);
        System.out.println("admin");
        try (Table table = connection.getTable(name)) {
          rows(table);
          System.out.println("rows");
          scans(table);
          System.out.println("scans");
          changes(table);
          System.out.println("changes");
          replicas(table);
          System.out.println("replicas");
        }
        admin.disableTable(name);
        check(admin.isTableDisabled(name), "disabled");
        admin.deleteTable(name);
        check(!admin.tableExists(name), "dropped");
        System.out.println("dropped");
      }
      errors(connection);
      System.out.println("errors");
    }
  }

  private static void admin(Admin admin, TableName name) throws Exception {
    admin.createNamespace(NamespaceDescriptor.create("javans").build());
    check(admin.getNamespaceDescriptor("javans").getName().equals("javans"), "namespace");
    admin.deleteNamespace("javans");
    admin.createTable(
      TableDescriptorBuilder.newBuilder(name).setRegionReplication(2)
        .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(CF).setMaxVersions(3).build()).build(),
      new byte[][] { b("m") });
    check(admin.tableExists(name), "exists");
    check(admin.isTableEnabled(name) && admin.isTableAvailable(name), "enabled");
    check(admin.getDescriptor(name).getRegionReplication() == 2, "replication");
    check(admin.getDescriptor(name).getColumnFamily(CF).getMaxVersions() == 3, "versions");
    admin.addColumnFamily(name, ColumnFamilyDescriptorBuilder.of("more"));
    check(admin.getDescriptor(name).hasColumnFamily(b("more")), "added");
    admin.deleteColumnFamily(name, b("more"));
    check(Arrays.asList(admin.listTableNames()).contains(name), "listed");
  }

  private static void rows(Table table) throws Exception {
    table.put(new Put(b("a")).addColumn(CF, Q, 5L, b("v")));
    Result found = table.get(new Get(b("a")));
    check(Bytes.equals(found.getValue(CF, Q), b("v")), "value");
    check(found.rawCells()[0].getTimestamp() == 5L, "timestamp");
    check(table.exists(new Get(b("a"))) && !table.exists(new Get(b("nobody"))), "exists");
    check(table.get(new Get(b("nobody"))).isEmpty(), "nothing");
    List<Put> puts = new ArrayList<>();
    List<Get> gets = new ArrayList<>();
    for (int i = 0; i < 100; i++) {
      puts.add(new Put(b(String.format("r%03d", i))).addColumn(CF, Q, b("" + i)).addColumn(CF, b("big"), new byte[500]));
      gets.add(new Get(b(String.format("r%03d", i))));
    }
    table.put(puts);
    Result[] many = table.get(gets);
    for (int i = 0; i < 100; i++) {
      check(Bytes.equals(many[i].getValue(CF, Q), b("" + i)), "row " + i);
    }
    table.delete(new Delete(b("a")));
    check(!table.exists(new Get(b("a"))), "deleted");
  }

  private static int count(Table table, Scan scan) throws Exception {
    int rows = 0;
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        check(!result.isEmpty(), "a row has cells");
        rows++;
      }
    }
    return rows;
  }

  private static void scans(Table table) throws Exception {
    check(count(table, new Scan().setCaching(7)) == 100, "all");
    check(count(table, new Scan().withStartRow(b("r010")).withStopRow(b("r020"))) == 10, "range");
    check(count(table, new Scan().setFilter(new PrefixFilter(b("r00")))) == 10, "filter");
    check(count(table, new Scan().setReversed(true).withStartRow(b("r009"))) == 10, "reversed");
  }

  private static void changes(Table table) throws Exception {
    Increment step = new Increment(b("n")).addColumn(CF, Q, 5);
    check(Bytes.toLong(table.increment(step).getValue(CF, Q)) == 5, "first");
    check(Bytes.toLong(table.increment(step).getValue(CF, Q)) == 10, "second");
    table.append(new Append(b("s")).addColumn(CF, Q, b("ab")));
    check(Bytes.equals(table.append(new Append(b("s")).addColumn(CF, Q, b("cd"))).getValue(CF, Q), b("abcd")), "append");
    Put put = new Put(b("c")).addColumn(CF, Q, b("1"));
    table.put(put);
    check(!table.checkAndMutate(b("c"), CF).qualifier(Q).ifMatches(CompareOperator.EQUAL, b("2")).thenPut(put), "other");
    check(table.checkAndMutate(b("c"), CF).qualifier(Q).ifMatches(CompareOperator.EQUAL, b("1"))
      .thenDelete(new Delete(b("c"))), "equal");
    check(!table.exists(new Get(b("c"))), "gone");
  }

  private static void replicas(Table table) throws Exception {
    Get get = new Get(b("r001")).setConsistency(Consistency.TIMELINE);
    get.setReplicaId(1);
    for (int i = 0; i < 600 && table.get(get).isEmpty(); i++) {
      Thread.sleep(100); // until the secondary has it
    }
    Result found = table.get(get);
    check(!found.isEmpty() && found.isStale(), "a secondary answers, and says so");
    check(!table.get(new Get(b("r001"))).isStale(), "a primary does not");
  }

  private static void errors(Connection connection) throws Exception {
    try (Table table = connection.getTable(TableName.valueOf("nope"))) {
      table.get(new Get(b("r")));
      check(false, "a table that is not there cannot be read");
    } catch (java.io.IOException expected) {
      check(expected.toString().contains("nope"), "the error names the table: " + expected);
    }
  }

  // -- Thrift 1: the generated client

  private static void thrift1(String host, int port) throws Exception {
    for (boolean framed : new boolean[] { false, true }) {
      for (boolean compact : new boolean[] { false, true }) {
        try (TSocket socket = new TSocket(new TConfiguration(), host, port, 60_000)) {
          TTransport transport = framed ? new TFramedTransport(socket) : socket;
          if (!transport.isOpen()) {
            transport.open();
          }
          TProtocol protocol = compact ? new TCompactProtocol(transport) : new TBinaryProtocol(transport);
          one(new Hbase.Client(protocol), "one_" + framed + "_" + compact);
        }
      }
    }
    System.out.println("thrift1");
  }

  private static void one(Hbase.Client client, String name) throws Exception {
    Map<ByteBuffer, ByteBuffer> none = Collections.emptyMap();
    ColumnDescriptor family = new ColumnDescriptor();
    family.setName(b("cf:"));
    client.createTable(buffer(name), Collections.singletonList(family));
    try {
      client.createTable(buffer(name), Collections.singletonList(family));
      check(false, "a table is made once");
    } catch (AlreadyExists expected) {
      check(expected.getMessage().contains("already"), "the error says so");
    }
    List<BatchMutation> rows = new ArrayList<>();
    for (int i = 0; i < 50; i++) {
      Mutation put = new Mutation();
      put.setColumn(b("cf:a"));
      put.setValue(new byte[200]);
      rows.add(new BatchMutation(buffer(String.format("r%02d", i)), Collections.singletonList(put)));
    }
    client.mutateRows(buffer(name), rows, none);
    int scanner = client.scannerOpenWithScan(buffer(name), new TScan().setStartRow(b("r10")), none);
    int found = 0;
    for (List<TRowResult> page; !(page = client.scannerGetList(scanner, 15)).isEmpty();) {
      found += page.size();
    }
    client.scannerClose(scanner);
    check(found == 40, "rows of the scan: " + found);
    check(client.atomicIncrement(buffer(name), buffer("n"), buffer("cf:n"), 7) == 7, "counter");
    try {
      client.scannerGet(scanner);
      check(false, "a closed scanner cannot be read");
    } catch (IllegalArgument expected) {
      check(expected.getMessage().equals("scanner ID is invalid"), expected.getMessage());
    }
    try {
      client.getRow(buffer("nope"), buffer("r"), none);
      check(false, "a table that is not there cannot be read");
    } catch (IOError expected) {
      check(expected.getMessage().startsWith("org.apache.hadoop.hbase.TableNotFoundException: nope"), "class");
      check(!expected.isCanRetry(), "final");
    }
    client.disableTable(buffer(name));
    client.deleteTable(buffer(name));
  }
}
