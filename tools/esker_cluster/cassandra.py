#!/usr/bin/env python3
"""Apache Cassandra on this machine, for development and tests: real servers, from Maven Central's jars.

    cassandra.py up [1|3]    starts one node at 127.0.0.1:9042, or three at 127.0.0.1, .2 and .3
    cassandra.py secure [1|3]    the same, with TLS (run/ca.pem) and users (cassandra, cassandra)
    cassandra.py kill N      SIGKILL to node N
    cassandra.py pause N     SIGSTOP: the node hangs
    cassandra.py resume N    SIGCONT
    cassandra.py start N     starts a node again that was killed
    cassandra.py down        ends all nodes, and removes their data
    cassandra.py admin flush|compact KEYSPACE[.TABLE]    on each node, of all its files

ESKER_CASSANDRA names the folder of the jars (`lib`) and of the data (`run`); without it, a folder among the temporary
files. Jars that are missing are fetched by Maven, once. ESKER_JAVA names the java binary (11 or 17). ESKER_CASSANDRA_NET
is the begin of the addresses in place of 127.0.0, as in 127.0.7, so that several clusters run side by side.
ESKER_CASSANDRA_SETTINGS has further settings of the nodes, `name: value; name: value`.
"""
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

VERSION = "5.0.9"
HOME = os.environ.get("ESKER_CASSANDRA") or os.path.join(tempfile.gettempdir(), "esker-cluster", "cassandra")
LIB, RUN = os.path.join(HOME, "lib"), os.path.join(HOME, "run")
NET = os.environ.get("ESKER_CASSANDRA_NET") or "127.0.0"
CLIENTS, NODES, STATISTICS = 9042, 7000, 7200 + 10 * int(NET.rsplit(".", 1)[1])
# Of the file with the key of a secure cluster. It lasts as long as the test.
KEY_PASSWORD = "esker-test"
# MiB of heap, for one node and for each of three.
HEAPS = {1: 512, 3: 384}
START, END = 400, 60

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>esker.development</groupId>
  <artifactId>cassandra</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.cassandra</groupId>
      <artifactId>cassandra-all</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

# What the server reaches into of Java's own modules.
EXPORTS = {
    "java.base": "java.lang.ref jdk.internal.misc jdk.internal.ref sun.nio.ch",
    "java.management.rmi": "com.sun.jmx.remote.internal.rmi",
    "java.rmi": "sun.rmi.registry sun.rmi.server",
    "java.sql": "java.sql",
    "jdk.attach": "sun.tools.attach",
    "jdk.compiler": "com.sun.tools.javac.file",
    "jdk.unsupported": "sun.misc",
}
OPENS = {
    "java.base": "java.io java.lang java.lang.module java.lang.reflect java.nio java.util jdk.internal.loader "
    "jdk.internal.math jdk.internal.module jdk.internal.ref jdk.internal.reflect jdk.internal.util.jar sun.nio.ch",
    "java.rmi": "sun.rmi.transport.tcp",
    "jdk.compiler": "com.sun.tools.javac",
    "jdk.management": "com.sun.management.internal",
}

LOG = """<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>${cassandra.logdir}/system.log</file>
    <encoder><pattern>%-5level %date{ISO8601} %logger{0} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="FILE"/></root>
</configuration>
"""


def modules():
    for option, packages in (("--add-exports", EXPORTS), ("--add-opens", OPENS)):
        for module, names in packages.items():
            for name in names.split():
                yield from (option, f"{module}/{name}=ALL-UNNAMED")


def java():
    named = [os.environ.get("ESKER_JAVA")]
    home = os.environ.get("JAVA_HOME")
    named += [home and os.path.join(home, "bin", "java"), shutil.which("java")]
    named += sorted(glob.glob("/usr/lib/jvm/*17*/bin/java") + glob.glob("/usr/lib/jvm/*11*/bin/java"), reverse=True)
    for binary in filter(None, named):
        try:
            said = subprocess.run([binary, "-version"], capture_output=True, text=True).stderr
        except OSError:
            continue
        if re.search(r'version "(11|17)\b', said):
            return binary
    sys.exit("Cassandra needs Java 11 or 17: ESKER_JAVA names its binary")


def fetch():
    """The jars, once."""
    if glob.glob(os.path.join(LIB, "apache-cassandra*.jar")) or glob.glob(os.path.join(LIB, "cassandra-all*.jar")):
        return
    if not shutil.which("mvn"):
        sys.exit(f"{LIB} has no jars of Cassandra, and Maven (mvn), which fetches them, is not installed")
    os.makedirs(HOME, exist_ok=True)
    pom = os.path.join(HOME, "pom.xml")
    with open(pom, "w") as file:
        file.write(POM)
    print(f"fetching the jars of Cassandra {VERSION} (70 MB) to {LIB}", file=sys.stderr)
    part = LIB + ".part"
    shutil.rmtree(part, ignore_errors=True)
    done = subprocess.run(["mvn", "-B", "-q", "-f", pom, "dependency:copy-dependencies", "-DincludeScope=runtime",
                           f"-DoutputDirectory={part}"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the jars cannot be fetched: {(done.stdout + done.stderr)[-400:]}")
    os.rename(part, LIB)


def folder(node):
    return os.path.join(RUN, f"node{node}")


def host(node):
    return f"{NET}.{node}"


def make_certificate(count):
    """A certificate for the addresses of all nodes, signed by itself: run/ca.pem."""
    tool = [os.path.join(os.path.dirname(java()), "keytool")]
    store = ["-keystore", f"{RUN}/keys.p12", "-storetype", "PKCS12", "-storepass", KEY_PASSWORD, "-alias", "esker"]
    names = ",".join(f"ip:{host(node)}" for node in range(1, count + 1))
    make = ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=esker", "-validity", "2", "-ext", f"san={names}"]
    for words in (make, ["-exportcert", "-rfc", "-file", f"{RUN}/ca.pem"]):
        done = subprocess.run(tool + words + store, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"keytool: {done.stdout}{done.stderr}")


def secured():
    return [
        "authenticator: {class_name: org.apache.cassandra.auth.PasswordAuthenticator}",
        "authorizer: {class_name: org.apache.cassandra.auth.CassandraAuthorizer}",
        "role_manager: {class_name: org.apache.cassandra.auth.CassandraRoleManager}",
        "client_encryption_options:",
        "  enabled: true",
        "  optional: false",
        f"  keystore: {RUN}/keys.p12",
        f"  keystore_password: {KEY_PASSWORD}",
        "  store_type: PKCS12",
    ]


def settings(node, count, is_secure):
    """cassandra.yaml: one range of tokens a node, evenly, so that a new ring has nothing to move; and small caches."""
    at = folder(node)
    token = -(2**63) + (node - 1) * (2**64 // count)
    folders = {"commitlog_directory": "commitlog", "saved_caches_directory": "caches", "hints_directory": "hints",
               "cdc_raw_directory": "cdc"}
    lines = [
        "cluster_name: esker",
        "num_tokens: 1",
        f'initial_token: "{token}"',
        "auto_bootstrap: false",
        "partitioner: org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch: SimpleSnitch",
        "dynamic_snitch: false",
        "seed_provider:",
        "  - class_name: org.apache.cassandra.locator.SimpleSeedProvider",
        f'    parameters: [{{seeds: "{host(1)}:{NODES}"}}]',
        f"listen_address: {host(node)}",
        f"rpc_address: {host(node)}",
        f"storage_port: {NODES}",
        f"native_transport_port: {CLIENTS}",
        f"data_file_directories: [{at}/data]",
        *(f"{name}: {at}/{of}" for name, of in folders.items()),
        "commitlog_sync: periodic",
        "commitlog_sync_period: 10s",
        "commitlog_segment_size: 8MiB",
        "commitlog_total_space: 256MiB",
        "memtable_heap_space: 96MiB",
        "memtable_offheap_space: 96MiB",
        "memtable_allocation_type: heap_buffers",
        "networking_cache_size: 32MiB",
        "file_cache_size: 64MiB",
        "key_cache_size: 16MiB",
        "counter_cache_size: 0MiB",
        "concurrent_reads: 8",
        "concurrent_writes: 8",
        "concurrent_compactors: 1",
        "compaction_throughput: 0MiB/s",
        "auto_snapshot: false",
        "sstable: {selected_format: bti}",
        "storage_compatibility_mode: NONE",
        *(secured() if is_secure else []),
    ]
    more = os.environ.get("ESKER_CASSANDRA_SETTINGS", "").split(";")
    more = [line.strip() for line in more if line.strip()]
    named = {line.split(":")[0] for line in more}
    lines = [line for line in lines if line.split(":")[0] not in named] + more
    return "\n".join(lines) + "\n"


def command(node, heap):
    at = folder(node)
    agent = glob.glob(os.path.join(LIB, "jamm-*.jar"))
    if not agent:
        sys.exit(f"{LIB} has no jamm-*.jar, which Cassandra measures memory with")
    return [
        java(), f"-Xms{heap}m", f"-Xmx{heap}m", f"-XX:MaxDirectMemorySize={heap // 2}m", "-XX:+UseSerialGC", "-Xss512k",
        "-XX:+ExitOnOutOfMemoryError", "-XX:+PerfDisableSharedMem", f"-javaagent:{agent[0]}",
        "-Djdk.attach.allowAttachSelf=true", "-Dio.netty.tryReflectionSetAccessible=true",
        "-Djava.net.preferIPv4Stack=true", "-Djna.nosys=true",
        f"-Dcassandra.jmx.local.port={STATISTICS + node}", f"-Dcassandra.config=file://{at}/conf/cassandra.yaml",
        f"-Dcassandra.storagedir={at}", f"-Dcassandra.logdir={at}",
        f"-Dlogback.configurationFile=file://{at}/conf/logback.xml",
        # Nodes of one machine need not wait for each other's news.
        "-Dcassandra.ring_delay_ms=1000", "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        "-Dcassandra.superuser_setup_delay_ms=0", "-Dcassandra.consistent.rangemovement=false",
        "-Dcassandra-foreground=yes", *modules(),
        "-cp", f"{at}/conf:{LIB}/*", "org.apache.cassandra.service.CassandraDaemon",
    ]


def configured():
    found = glob.glob(os.path.join(RUN, "node*"))
    return sorted(int(name.rsplit("node", 1)[1]) for name in found)


def alive(pid):
    """True while a thread runs: a killed server's first thread is gone before the others."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            state = file.read().rsplit(")", 1)[1].split()[0]
        return state not in "ZX" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def pid(node):
    """The process of a node, if it is that one still."""
    try:
        with open(os.path.join(folder(node), "pid")) as file:
            number = int(file.read())
        with open(f"/proc/{number}/cmdline") as file:
            return number if folder(node) + "/conf" in file.read() else None
    except (OSError, ValueError):
        return None


def send(node, sent):
    number = pid(node)
    if number is None:
        sys.exit(f"node {node} does not run")
    os.kill(number, sent)
    return number


def end(node, sent):
    number = pid(node)
    if number is None:
        return
    if sent == signal.SIGTERM:
        # A node that was paused does not end.
        os.kill(number, signal.SIGCONT)
    os.kill(number, sent)
    due = time.monotonic() + END
    while alive(number):
        if time.monotonic() > due:
            os.kill(number, signal.SIGKILL)
        time.sleep(0.1)


def log(node):
    try:
        with open(os.path.join(folder(node), "system.log"), errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def start(node):
    if node not in configured():
        sys.exit(f"there is no node {node}")
    if pid(node) is not None:
        sys.exit(f"node {node} runs already")
    at, count = folder(node), len(configured())
    with open(os.path.join(at, "output.log"), "ab") as out:
        process = subprocess.Popen(command(node, HEAPS[count]), stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=at,
                                   start_new_session=True)
    with open(os.path.join(at, "pid"), "w") as file:
        file.write(str(process.pid))
    due = time.monotonic() + START
    while time.monotonic() < due:
        if process.poll() is not None:
            sys.exit(f"node {node} ended with {process.returncode}: see {at}/output.log and system.log")
        try:
            socket.create_connection((host(node), CLIENTS), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"node {node} does not answer after {START} s: see {at}/system.log")


def meet(count):
    """Waits until each node knows that the others run."""
    due = time.monotonic() + START
    for node in range(1, count + 1):
        others = [host(other) for other in range(1, count + 1) if other != node]
        while not all(re.search(rf"{re.escape(other)}:{NODES} is now UP", log(node)) for other in others):
            if time.monotonic() > due:
                sys.exit(f"node {node} does not find the others: see {folder(node)}/system.log")
            time.sleep(0.2)


def up(count, is_secure=False):
    fetch()
    if any(pid(node) for node in configured()):
        sys.exit("nodes run already: `down` ends them")
    shutil.rmtree(RUN, ignore_errors=True)
    if is_secure:
        os.makedirs(RUN)
        make_certificate(count)
    for node in range(1, count + 1):
        conf = os.path.join(folder(node), "conf")
        os.makedirs(conf)
        for name, text in (("cassandra.yaml", settings(node, count, is_secure)), ("logback.xml", LOG)):
            with open(os.path.join(conf, name), "w") as file:
                file.write(text)
    for node in range(1, count + 1):
        start(node)
    meet(count)
    hosts = ",".join(host(node) for node in range(2, count + 1))
    print(f"cassandra://{host(1)}:{CLIENTS}{',' if hosts else ''}{hosts}/KEYSPACE")


def down():
    for node in configured():
        end(node, signal.SIGTERM)
    shutil.rmtree(RUN, ignore_errors=True)


def admin(what, table):
    """Cassandra's own tool, on each node."""
    conf = os.path.join(RUN, "tools")
    os.makedirs(conf, exist_ok=True)
    with open(os.path.join(conf, "logback-tools.xml"), "w") as file:
        file.write('<configuration><root level="OFF"/></configuration>')
    for node in configured():
        done = subprocess.run([
            java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", *modules(), f"-Dcassandra.storagedir={conf}",
            f"-Dcassandra.logdir={conf}", f"-Duser.home={conf}",
            f"-Dcassandra.config=file://{folder(node)}/conf/cassandra.yaml",
            f"-Dlogback.configurationFile=file://{conf}/logback-tools.xml", "-cp", f"{conf}:{LIB}/*",
            "org.apache.cassandra.tools.NodeTool", "-h", "127.0.0.1", "-p", str(STATISTICS + node), what,
            *table.split("."),
        ])
        if done.returncode:
            sys.exit(f"{what} of {table} has failed on node {node}")


def main(words):
    command_, rest = (words[0], words[1:]) if words else ("", [])
    one = int(rest[0]) if len(rest) == 1 and rest[0].isdigit() else None
    if command_ in ("up", "secure") and (not rest or one in HEAPS):
        up(one or 1, command_ == "secure")
    elif command_ == "down" and not rest:
        down()
    elif command_ == "kill" and one:
        end(one, signal.SIGKILL)
    elif command_ in ("pause", "resume") and one:
        send(one, signal.SIGSTOP if command_ == "pause" else signal.SIGCONT)
    elif command_ == "start" and one:
        start(one)
    elif command_ == "admin" and len(rest) == 2 and rest[0] in ("flush", "compact"):
        admin(*rest)
    else:
        sys.exit(__doc__.strip())


if __name__ == "__main__":
    main(sys.argv[1:])
