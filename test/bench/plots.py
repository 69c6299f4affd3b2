"""Plots by gnuplot, as SVG, where gnuplot is installed (Debian: gnuplot-nox)."""

import os
import shutil
import subprocess


class Plots:
    def __init__(self, directory):
        self.dir = directory
        self.gnuplot = shutil.which('gnuplot')
        self.made = []		# (title, path)

    def lines(self, name, title, xlabel, ylabel, curves, logx=False, y2=None):
        """curves: {label: [(x, y), ...]}; the labels in y2 belong to the right axis."""
        data = os.path.join(self.dir, name + '.dat')
        with open(data, 'w') as f:
            for label, points in curves.items():
                f.write('# %s\n' % label)
                f.writelines('%.6g %.6g\n' % p for p in points)
                f.write('\n\n')
        if not self.gnuplot:
            return
        path = os.path.join(self.dir, name + '.svg')
        commands = ['set terminal svg size 800,450 dynamic font "sans-serif,12" background "white"',
                    'set output "%s"' % path, 'set title "%s"' % title, 'set grid',
                    'set key outside below', 'set xlabel "%s"' % xlabel,
                    'set ylabel "%s"' % ylabel]
        if logx:
            commands.append('set logscale x')
        else:
            commands.append('set yrange [0:*]')
        if y2:
            commands += ['set y2tics', 'set y2label "%s"' % ', '.join(y2), 'set y2range [0:*]']
        commands.append('plot ' + ', '.join(
            '"%s" index %d using 1:2 with lines title "%s"%s' % (
                data, i, label, ' axes x1y2' if y2 and label in y2 else '')
            for i, label in enumerate(curves)))
        done = subprocess.run([self.gnuplot], input='\n'.join(commands) + '\n',
                              capture_output=True, text=True)
        if done.returncode == 0:
            self.made.append((title, path))
        else:
            print('gnuplot: ' + done.stderr.strip())
