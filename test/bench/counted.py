"""Instructions and system calls of one server process over a block.

Both are counts: another load on the machine changes them little, or not at all.
"""

import collections
import os
import re
import shutil
import signal
import subprocess
import time

# Not the server that clients connect to.
OTHER_MODES = ('-V', '-C', '--single', '--boot', '--check')

WRAPPER = """#!/bin/sh
case " $* " in
	{modes}) exec '{server}' "$@" ;;
esac
LD_PRELOAD='{preload}' exec valgrind --quiet --tool=callgrind \\
	--callgrind-out-file='{out}/%p' '{server}' "$@"
"""


def under_callgrind(root, bindir, preload, out):
    """The bindir of a copy of the installation in ROOT, whose servers run under callgrind."""
    copy = os.path.join(out, 'install')
    shutil.copytree(root, copy, symlinks=True)
    os.chmod(out, 0o777)
    preload = shutil.copy(preload, out)
    bindir = copy + bindir[len(root):]
    server = os.path.join(bindir, 'postgres')
    os.rename(server, server + '.real')
    with open(server, 'w') as f:
        f.write(WRAPPER.format(modes=' | '.join('*" %s "*' % mode for mode in OTHER_MODES),
                               server=server + '.real', preload=preload, out=out))
    os.chmod(server, 0o755)
    return bindir


class Instructions:
    """Instructions of a process whose server runs under callgrind:

        with Instructions(out, pid) as counted: ...
        counted.total, counted.inclusive['outbox_encode'], counted.parts()
    """

    def __init__(self, out, pid):
        self.out, self.pid = out, pid

    def _files(self):
        return {name for name in os.listdir(self.out) if name.startswith('%d.' % self.pid)}

    def _dump(self):
        """The path of the file that the process writes."""
        before = self._files()
        os.kill(self.pid, signal.SIGRTMIN + 5)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for name in self._files() - before:
                path = os.path.join(self.out, name)
                with open(path, 'rb') as f:
                    f.seek(max(0, os.path.getsize(path) - 200))
                    if b'\ntotals:' in f.read():
                        return path
            time.sleep(0.01)
        raise RuntimeError('callgrind wrote nothing for process %d' % self.pid)

    def __enter__(self):
        self._dump()
        return self

    def __exit__(self, kind, *_):
        if not kind:
            self.path = self._dump()
            self._read()

    def _read(self):
        """The file's format is in valgrind's manual, "Callgrind Format Specification"."""
        self.total = 0
        self.inclusive = collections.Counter()
        self.objects = {}
        names = {'fn': {}, 'ob': {}}
        function = called = None

        def name(kind, text):
            number, _, rest = text.partition(' ')
            if rest:
                names[kind][number] = rest
            return names[kind].get(number, number)
        with open(self.path, encoding='utf-8', errors='replace') as f:
            for line in f:
                key, _, value = line.rstrip('\n').partition('=')
                if key in ('ob', 'cob'):
                    value = name('ob', value)
                    if key == 'ob':
                        current = value
                elif key == 'fn':
                    function = name('fn', value)
                    self.objects[function] = current
                elif key == 'cfn':
                    called = name('fn', value)
                elif line[0] in '+-*0123456789' and function:
                    cost = int((line.split() + ['0'])[1])		# a cost of 0 is left out
                    if called is None:
                        self.total += cost
                        self.inclusive[function] += cost
                    elif called != function and cost < 1 << 60:		# begun before the last file
                        self.inclusive[function] += cost
                    called = None

    def parts(self):
        """Our own functions, with what they call."""
        return {f: cost for f, cost in self.inclusive.items()
                if self.objects[f].endswith('/outbox.so')}


class Syscalls:
    """System calls of a process, by name in self.by; needs the right to ptrace it."""

    def __init__(self, out, pid):
        self.path, self.pid = os.path.join(out, 'strace.%d' % pid), pid

    def __enter__(self):
        self.strace = subprocess.Popen(['strace', '-c', '-f', '-o', self.path, '-p', str(self.pid)],
                                       stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        line = self.strace.stderr.readline()
        if 'attached' not in line:
            raise RuntimeError(line.strip() + self.strace.communicate()[1])
        return self

    def __exit__(self, *_):
        self.strace.send_signal(signal.SIGINT)
        self.strace.communicate(timeout=60)
        self.by = collections.Counter()
        with open(self.path) as f:
            for line in f:
                # % time, seconds, usecs/call, calls, errors (or nothing), name
                found = re.match(r' *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$', line)
                if found and found.group(2) != 'total':
                    self.by[found.group(2)] += int(found.group(1))
        self.total = sum(self.by.values())

    def parts(self):
        return self.by
