#!/bin/sh
# Makes build/bench-peers/java/{kafka,bookkeeper,spark-kafka}: the jars that the poms pin, fetched by Maven into
# build/bench-peers only, checked against jars.sha256, and the compiled clients of the first two. Where there is no JDK 17, Maven
# or network, or a jar is another one, the peer is left out with a word: exit code 0.
set -u
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
HERE=$ROOT/bench/peers/java
BUILD=$ROOT/build/bench-peers/java
COPY=org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies
export MAVEN_OPTS="-XX:-UsePerfData -XX:TieredStopAtLevel=1"

say() { echo "bench/peers: $*" >&2; }

for program in java javac mvn; do
    if ! command -v "$program" >/dev/null; then
        say "no $program, so Kafka and BookKeeper are not measured (apt-get install openjdk-17-jdk-headless maven)"
        exit 0
    fi
done

for peer in kafka bookkeeper spark-kafka; do
    at=$BUILD/$peer
    wanted=$(cat "$HERE/$peer"/* "$HERE/driver"/* "$HERE/../install_java.sh" | sha256sum)
    [ "$(cat "$at/.installed" 2>/dev/null)" = "$wanted" ] && continue
    rm -rf "$at"
    mkdir -p "$at/lib" "$at/classes"
    say "$peer: fetching jars"
    if ! timeout 900 mvn -q -B -C -f "$HERE/$peer/pom.xml" -Dmaven.repo.local="$BUILD/repository" "$COPY" \
        -DoutputDirectory="$at/lib" >"$at/mvn.log" 2>&1; then
        say "$peer: Maven cannot fetch the jars, so not measured (${at#"$ROOT"/}/mvn.log)"
        continue
    fi
    (cd "$at/lib" && sha256sum ./*.jar | sed 's|\./||' | LC_ALL=C sort -k 2) >"$at/fetched"
    if ! LC_ALL=C sort -k 2 "$HERE/$peer/jars.sha256" | cmp - "$at/fetched" >&2; then
        say "$peer: the jars are not those of jars.sha256, so not measured"
        rm -rf "$at/lib"
        continue
    fi
    if ls "$HERE/$peer"/*.java >/dev/null 2>&1 &&
        ! javac --release 17 -J-XX:-UsePerfData -cp "$at/lib/*" -d "$at/classes" "$HERE/driver"/*.java "$HERE/$peer"/*.java \
            >"$at/javac.log" 2>&1; then
        say "$peer: the client does not compile, so not measured (${at#"$ROOT"/}/javac.log)"
        continue
    fi
    echo "$wanted" >"$at/.installed"
done
exit 0
