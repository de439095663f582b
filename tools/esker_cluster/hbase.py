#!/usr/bin/env python3
"""HBase on this machine, for development and tests: real servers, from Maven Central's jars.

    hbase.py up [1|3]      one process (master and region server), or a master and three region
                           servers; and the Thrift gateway at 127.0.0.1:9090
    hbase.py kill N        SIGKILL to region server N (of one process: to that one)
    hbase.py pause N       SIGSTOP: the server hangs
    hbase.py resume N      SIGCONT
    hbase.py start N       starts a server that was killed
    hbase.py down          ends all and removes their data
    hbase.py admin flush|compact|split|regions|raw TABLE    see HBaseAdmin.java

ESKER_HBASE names the folder of the jars (`lib`) and of the data (`run`); without it, a folder
among the temporary files. Jars that are missing are fetched by Maven once. ESKER_JAVA names the
java binary (17), ESKER_HBASE_SESSION the milliseconds until a killed server's regions move,
ESKER_HBASE_PORTS a number that is added to all ports, so that clusters run side by side.
ESKER_HBASE_SETTINGS has further settings of the servers, `name: value; name: value`.
"""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
HOME = os.environ.get("ESKER_HBASE") or os.path.join(tempfile.gettempdir(), "esker-cluster", "hbase")
LIB, RUN = os.path.join(HOME, "lib"), os.path.join(HOME, "run")
SESSION = int(os.environ.get("ESKER_HBASE_SESSION", "10000"))
PORTS = int(os.environ.get("ESKER_HBASE_PORTS") or 0)
ZOOKEEPER, MASTER, REGION_SERVER, GATEWAY = (PORTS + port for port in (2181, 16000, 16020, 9090))
# MiB of heap. Three servers share the machine with a master.
HEAP_ALONE, HEAP_OF_MANY, HEAP_SMALL = 640, 384, 192
READY = "Master has completed initialization"

OPENS = "nio lang lang.reflect util util.concurrent net".split()
MODULES = ["--add-modules", "jdk.unsupported"]
for package in ["java.base/java." + name for name in OPENS] + ["java.base/sun.nio.ch", "java.base/jdk.internal.ref"]:
    MODULES += ["--add-opens", package + "=ALL-UNNAMED"]
for package in ["java.base/jdk.internal.misc", "java.security.jgss/sun.security.krb5"]:
    MODULES += ["--add-exports", package + "=ALL-UNNAMED"]


def java():
    known = [os.environ.get("ESKER_JAVA"), "/usr/lib/jvm/java-17-openjdk-amd64/bin/java", shutil.which("java")]
    for path in known:
        if path and os.path.exists(path):
            return path
    raise SystemExit("no java: install Java 17, or name it in ESKER_JAVA")


def fetch():
    """The jars, if they are not there yet."""
    if os.path.isdir(LIB) and os.listdir(LIB):
        return
    if not shutil.which("mvn"):
        raise SystemExit(f"no jars in {LIB}, and no mvn to fetch them")
    os.makedirs(HOME, exist_ok=True)
    shutil.copy(os.path.join(HERE, "hbase-pom.xml"), os.path.join(HOME, "pom.xml"))
    command = ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=lib"]
    if subprocess.run(command, cwd=HOME).returncode:
        raise SystemExit("the jars of HBase cannot be fetched")


def settings(is_distributed, port):
    return {
        "hbase.cluster.distributed": "true" if is_distributed else "false",
        "hbase.rootdir": f"file://{RUN}/root",
        "hbase.unsafe.stream.capability.enforce": "false",
        "hbase.wal.provider": "filesystem",
        "hbase.zookeeper.quorum": "127.0.0.1",
        "hbase.zookeeper.property.clientPort": ZOOKEEPER,
        "hbase.zookeeper.property.dataDir": f"{RUN}/zookeeper",
        "hbase.zookeeper.property.tickTime": max(500, SESSION // 20),
        "zookeeper.session.timeout": SESSION,
        "hbase.master.port": MASTER,
        "hbase.regionserver.port": port,
        "hbase.localcluster.assign.random.ports": "false",
        "hbase.master.hostname": "localhost",
        "hbase.unsafe.regionserver.hostname": "localhost",
        "hbase.master.ipc.address": "127.0.0.1",
        "hbase.regionserver.ipc.address": "127.0.0.1",
        "hbase.master.info.port": -1,
        "hbase.regionserver.info.port": -1,
        "hbase.regionserver.handler.count": 12,
        "hbase.regionserver.global.memstore.size": "0.3",
        "hfile.block.cache.size": "0.3",
        "hbase.hregion.memstore.flush.size": 32 << 20,
        "hbase.master.wait.on.regionservers.mintostart": 1,
        # Logs and files that are not needed any more: HBase keeps them for minutes, which are gigabytes of a load.
        "hbase.master.logcleaner.ttl": 10000,
        "hbase.master.hfilecleaner.ttl": 10000,
        "hbase.master.cleaner.interval": 10000,
    }


def configure(name, is_distributed, port):
    folder = f"{RUN}/conf-{name}"
    os.makedirs(folder, exist_ok=True)
    all_of_it = dict(settings(is_distributed, port), **{"hbase.tmp.dir": f"{RUN}/tmp-{name}"})
    more = [pair.split(":", 1) for pair in os.environ.get("ESKER_HBASE_SETTINGS", "").split(";") if ":" in pair]
    all_of_it.update({key.strip(): value.strip() for key, value in more})
    lines = [f"<property><name>{key}</name><value>{value}</value></property>" for key, value in all_of_it.items()]
    with open(f"{folder}/hbase-site.xml", "w") as file:
        file.write("<configuration>\n" + "\n".join(lines) + "\n</configuration>\n")
    with open(f"{folder}/log4j.properties", "w") as file:
        file.write(
            "log4j.rootLogger=INFO,F\nlog4j.appender.F=org.apache.log4j.FileAppender\n"
            f"log4j.appender.F.File={RUN}/{name}.log\nlog4j.appender.F.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.F.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{2}: %m%n\n"
        )
    return folder


def spawn(name, main, arguments, heap, is_distributed=True, port=REGION_SERVER):
    folder = configure(name, is_distributed, port)
    command = [
        java(), f"-Xms{heap // 2}m", f"-Xmx{heap}m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError", *MODULES,
        "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true", "-Djava.net.preferIPv4Stack=true",
        f"-Djava.io.tmpdir={RUN}", f"-Desker.process={name}", "-cp", f"{folder}:{LIB}/*", main, *arguments,
    ]  # fmt: skip
    with open(f"{RUN}/{name}.out", "ab") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=RUN, start_new_session=True
        )
    with open(f"{RUN}/{name}.pid", "w") as file:
        file.write(str(process.pid))
    return process


def await_(name, process, is_ready, limit=180):
    until = time.time() + limit
    while time.time() < until:
        if process.poll() is not None:
            raise SystemExit(f"{name} has ended with {process.returncode}; see {RUN}/{name}.out and {name}.log")
        if is_ready():
            return
        time.sleep(0.2)
    raise SystemExit(f"{name} is not ready after {limit} s; see {RUN}/{name}.log")


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def log_says(name, word):
    """A test that looks only at what is logged from now on."""
    path = f"{RUN}/{name}.log"
    begin = os.path.getsize(path) if os.path.exists(path) else 0

    def is_said():
        try:
            with open(path, errors="replace") as file:
                file.seek(begin)
                return word in file.read()
        except OSError:
            return False

    return is_said


def pid(name):
    """The process of that name, if it lives."""
    try:
        with open(f"{RUN}/{name}.pid") as file:
            number = int(file.read())
        with open(f"/proc/{number}/cmdline") as file:
            return number if f"-Desker.process={name}\0" in file.read() else None
    except (OSError, ValueError):
        return None


def end(name, how):
    number = pid(name)
    if number is None:
        return
    os.kill(number, how)
    # The first thread of a killed Java process is gone before the others, which hold its ports.
    for _ in range(600):
        try:
            with open(f"/proc/{number}/stat") as file:
                state = file.read().rsplit(")", 1)[1].split()[0]
            if state in "ZX" and len(os.listdir(f"/proc/{number}/task")) <= 1:
                break
        except OSError:
            break
        time.sleep(0.1)
    else:
        raise SystemExit(f"{name}, process {number}, does not end")


def server(n):
    """The name of server N."""
    return f"rs{n}" if os.path.exists(f"{RUN}/rs{n}.pid") else "hbase"


def region_server(n):
    name, port = f"rs{n}", REGION_SERVER + n
    main = "org.apache.hadoop.hbase.regionserver.HRegionServer"
    await_(name, spawn(name, main, ["start"], HEAP_OF_MANY, port=port), lambda: listens(port))


def alone():
    is_ready = log_says("hbase", READY)
    process = spawn("hbase", "org.apache.hadoop.hbase.master.HMaster", ["start"], HEAP_ALONE, False)
    await_("hbase", process, is_ready)


def gateway():
    arguments = ["-p", str(GATEWAY), "-b", "127.0.0.1", "--infoport", "-1", "start"]
    process = spawn("gateway", "org.apache.hadoop.hbase.thrift2.ThriftServer", arguments, HEAP_SMALL)
    await_("gateway", process, lambda: listens(GATEWAY))


def up(nodes):
    """Starts a cluster of 1 or 3 region servers; `hbase://127.0.0.1:9090/NAMESPACE` is its address."""
    if nodes not in (1, 3):
        raise SystemExit("1 or 3 nodes")
    if running():
        raise SystemExit("it is running already; `down` ends it")
    fetch()
    os.makedirs(RUN, exist_ok=True)
    if nodes == 1:
        alone()
    else:
        keeper = spawn("zookeeper", "org.apache.hadoop.hbase.zookeeper.HQuorumPeer", ["start"], 128)
        await_("zookeeper", keeper, lambda: listens(ZOOKEEPER))
        is_ready = log_says("master", READY)
        master = spawn("master", "org.apache.hadoop.hbase.master.HMaster", ["start"], HEAP_OF_MANY)
        for n in range(1, nodes + 1):
            region_server(n)
        await_("master", master, is_ready)
    gateway()


def kill(n):
    end(server(n), signal.SIGKILL)


def pause(n):
    os.kill(pid(server(n)) or sys.exit(f"server {n} is not running"), signal.SIGSTOP)


def resume(n):
    os.kill(pid(server(n)) or sys.exit(f"server {n} is not running"), signal.SIGCONT)


def start(n):
    if pid(server(n)):
        raise SystemExit(f"server {n} is running")
    alone() if server(n) == "hbase" else region_server(n)


def admin(arguments):
    """What the gateway has no calls for."""
    folder = configure("admin", True, REGION_SERVER)
    source = os.path.join(HERE, "HBaseAdmin.java")
    command = [java(), "-Xmx128m", *MODULES, "-cp", f"{folder}:{LIB}/*", source, *arguments]
    if subprocess.run(command).returncode:
        raise SystemExit("it failed")


def running():
    names = [name[:-4] for name in os.listdir(RUN) if name.endswith(".pid")] if os.path.isdir(RUN) else []
    return [name for name in names if pid(name)]


def down():
    # The data go with the servers, so that there is nothing for them to save.
    for name in running():
        end(name, signal.SIGKILL)
    shutil.rmtree(RUN, ignore_errors=True)


def main(arguments):
    commands = {"kill": kill, "pause": pause, "resume": resume, "start": start}
    match arguments:
        case ["up"]:
            up(1)
        case ["up", nodes]:
            up(int(nodes))
        case ["down"]:
            down()
        case ["admin", *rest] if len(rest) == 2:
            admin(rest)
        case [command, n] if command in commands:
            commands[command](int(n))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
