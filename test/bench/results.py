"""The figures of a run: one row each, a table for people and JSON lines for programs."""

import json
import os
import time

from stats import median, ratios, spread


def rounded(value):
    """Four digits that count, no exponents."""
    if value is None:
        return ''
    if value == 0:
        return '0'
    if abs(value) >= 1000:
        return '%d' % round(value)
    return '%.4g' % value if abs(value) >= 0.01 else '%.5f' % value


class Results:
    def __init__(self, environment):
        self.environment = environment
        self.rows = []

    def add(self, scenario, case, metric, unit, this, baseline=None, better='higher',
            judge='ratio', first=None, end=None, check=None, note='', **settings):
        """One figure.

        this, baseline[1]: samples, in the order of the runs; baseline[0]: its name.
        judge: what the targets are about: 'ratio' (of the pairs, median), 'this',
        or 'added' (this less the baseline).  better: 'higher' or 'lower'.
        """
        this = this if isinstance(this, list) else [this]
        row = dict(scenario=scenario, case=case, metric=metric, unit=unit,
                   this=median(this), this_samples=this, better=better, judge=judge,
                   first=first, end=end, note=note, settings=settings,
                   check=str(check) if check else '',
                   valid=check is None or check.ok(), time=int(time.time()))
        spreads = this
        if baseline:
            name, samples = baseline
            samples = samples if isinstance(samples, list) else [samples]
            pairs = ratios(this, samples)
            row.update(baseline_name=name, baseline=median(samples),
                       baseline_samples=samples,
                       ratio=median(pairs) if pairs else None)
            spreads = pairs or this
        row['spread'] = spread(spreads)
        value = (row['this'] if judge == 'this' else
                 row.get('ratio') if judge == 'ratio' else
                 row['this'] - row['baseline'] if baseline else None)
        row['judged'] = value
        row['met_first'] = self.met(row, first)
        row['met_end'] = self.met(row, end)
        self.rows.append(row)
        print(self.line(row), flush=True)
        return row

    @staticmethod
    def met(row, target):
        if target is None or row['judged'] is None:
            return None
        if not row['valid']:
            return False
        if row['better'] == 'higher':
            return row['judged'] >= target
        return row['judged'] <= target

    @staticmethod
    def verdict(row):
        if row['first'] is None and row['end'] is None:
            return 'reported' if row['valid'] else 'INVALID'
        if not row['valid']:
            return 'NO (check failed)'
        if row['met_end'] or (row['end'] is None and row['met_first']):
            return 'yes'
        if row['met_first']:
            return 'first'
        return 'NO' if row['met_first'] is False else 'not yet'

    def line(self, row):
        return '  %2s  %s, %s: %s %s%s%s  [%s]' % (
            row['scenario'], row['case'], row['metric'], rounded(row['this']), row['unit'],
            ', %s %s' % (row['baseline_name'], rounded(row['baseline']))
            if row.get('baseline_name') else '',
            ', ratio %.3f' % row['ratio'] if row.get('ratio') else '', self.verdict(row))

    def invalid(self):
        """The rows whose check failed: results with one of them are not published."""
        return [self.line(row) for row in self.rows if not row['valid']]

    # -- files

    def write_json(self, path):
        with open(path, 'w') as f:
            f.write(json.dumps(dict(environment=self.environment)) + '\n')
            for row in self.rows:
                f.write(json.dumps(row) + '\n')

    def targets(self, row):
        sign = '>=' if row['better'] == 'higher' else '<='
        suffix = {'ratio': '', 'added': ' %s added' % row['unit'],
                  'this': ' ' + row['unit']}[row['judge']]
        return ['%s %s%s' % (sign, rounded(t) if t else '0', suffix) if t is not None else ''
                for t in (row['first'], row['end'])]

    def table(self):
        head = ('#', 'scenario', 'metric', 'this', 'baseline', 'ratio', 'spread',
                'first target', 'end target', 'met', 'check')
        lines = ['| %s |' % ' | '.join(head), '|%s' % (' --- |' * len(head))]
        for row in self.rows:
            baseline = ''
            if row.get('baseline_name'):
                baseline = '%s %s' % (row['baseline_name'], rounded(row['baseline']))
            cells = (str(row['scenario']), row['case'],
                     '%s (%s)' % (row['metric'], row['unit']), rounded(row['this']), baseline,
                     '%.3f' % row['ratio'] if row.get('ratio') is not None else '',
                     '%.0f %%' % (row['spread'] * 100) if row['spread'] is not None else '',
                     *self.targets(row), self.verdict(row), row['check'])
            lines.append('| %s |' % ' | '.join(cells))
        return lines

    def markdown(self, plots):
        lines = ['# Results of make bench', '',
                 'Written by test/bench; what the columns mean is in test/bench/README.md.', '']
        lines += ['| | |', '| --- | --- |']
        lines += ['| %s | %s |' % item for item in self.environment.items()]
        lines += [''] + self.table() + ['', '## Settings and notes', '']
        for row in self.rows:
            text = ', '.join('%s %s' % item for item in row['settings'].items())
            lines.append('- %s, %s, %s: %s' % (
                row['scenario'], row['case'], row['metric'],
                '. '.join(t for t in (text, row['note']) if t)))
        if plots:
            lines += ['', '## Plots', '']
            lines += ['![%s](%s)' % (title, os.path.basename(path)) for title, path in plots]
        return '\n'.join(lines) + '\n'
