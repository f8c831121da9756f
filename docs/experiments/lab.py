"""Shared by the scripts of this folder: running flexlab, reading what it wrote, small statistics. Standard library alone."""
import csv, json, math, os, shutil, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def run(flexlab, arguments, out):
    """flexlab compare into folder `out`, in place of an interrupted one; ends the script where it fails."""
    command = [flexlab, 'compare'] + arguments + ['--threads', '1', '--quiet', '--out', out]
    if os.path.isfile(os.path.join(out, 'metrics.jsonl')) and not complete(out):
        command.insert(2, '--force')
    print(' '.join(['flexlab'] + command[1:-2]), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f'{" ".join(command)}: exit status {done.returncode}')


def lines(folder, kind):
    """The lines of that type in metrics.jsonl."""
    with open(os.path.join(folder, 'metrics.jsonl'), encoding='utf-8') as f:
        return [x for x in map(json.loads, f) if x['type'] == kind]


def results(folder):
    """What each run of the folder came to, a dictionary a run."""
    return [{'format': r['format'], 'seed': r['seed'], 'steps': r['steps'], 'diverged': int(r['diverged']),
             'last_loss': r['last_loss'], 'test_loss': r['test_loss'], 'test_accuracy': r['test_accuracy'],
             'saturated': r['saturated'], 'flushed': r['flushed'], 'elements': r['elements'], 'skipped': r['skipped']}
            for r in lines(folder, 'run') if r['complete']]


def complete(folder):
    """All trainings of that compare came to their end; a folder that is not there, or was interrupted, is to be made anew."""
    if not os.path.isfile(os.path.join(folder, 'metrics.jsonl')):
        return False
    ends = lines(folder, 'end')
    return bool(ends) and ends[-1]['complete']


def table(folder, kind, name, seed):
    """Rows of a trace or of telemetry; name as in --formats."""
    with open(os.path.join(folder, f'{kind}-{name.replace(":", "_")}-seed{seed}.csv'), encoding='utf-8') as f:
        yield from csv.DictReader(f)


def write(name, rows):
    """data/NAME of dictionaries with the same keys."""
    path = os.path.join(HERE, 'data', name)
    with open(path + '.part', 'w', encoding='utf-8', newline='') as f:
        out = csv.DictWriter(f, list(rows[0]), lineterminator='\n')
        out.writeheader()
        out.writerows(rows)
    os.replace(path + '.part', path)


def read(name):
    with open(os.path.join(HERE, 'data', name), encoding='utf-8') as f:
        return list(csv.DictReader(f))


def scratch():
    """A folder for results that are read and thrown away."""
    return tempfile.TemporaryDirectory(prefix='flexlab-experiment-')


def mean(x):
    return sum(x) / len(x)


def deviation(x):
    """Of a sample; 0 of a single number."""
    return math.sqrt(sum((v - mean(x)) ** 2 for v in x) / (len(x) - 1)) if len(x) > 1 else 0.0


def paired(x):
    """Two-sided p of Student's test that the mean of the differences is 0; None where they are all the same."""
    n, s = len(x), deviation(x)
    if n < 2 or s == 0:
        return None
    t, k = abs(mean(x)) / (s / math.sqrt(n)), n - 1
    # The tail beyond t: t = sqrt(k) tan(a) turns the density into cos(a)^(k - 1), integrated by Simpson's rule.
    start, end, steps = math.atan(t / math.sqrt(k)), math.pi / 2, 2000
    f = lambda a: math.cos(a) ** (k - 1)
    simpson = lambda a, b: (b - a) / steps / 3 * sum((1 if i in (0, steps) else 4 if i % 2 else 2) * f(a + (b - a) * i / steps)
                                                     for i in range(steps + 1))
    return min(1.0, simpson(start, end) / simpson(0, end))


def p_text(x):
    p = paired(x)
    return '–' if p is None else '< 0.0001' if p < 0.0001 else f'{p:.4f}' if p < 0.1 else f'{p:.2f}'


def signed(x, digits):
    return f'{x:+.{digits}f}'.replace('-', '−')


def spread(x, digits, sign=False):
    """Mean and deviation; a single number stands alone."""
    m = signed(mean(x), digits) if sign else f'{mean(x):.{digits}f}'
    return f'{m} ± {deviation(x):.{digits}f}' if len(x) > 1 else m


def markdown(heads, rows):
    print('| ' + ' | '.join(heads) + ' |')
    print('| ' + ' | '.join(['---'] * len(heads)) + ' |')
    for row in rows:
        print('| ' + ' | '.join(str(c) for c in row) + ' |')
    print()


def plot(script, picture):
    """Draws docs/experiments/PICTURE with gnuplot commands that write an SVG to standard output."""
    if not shutil.which('gnuplot'):
        print(f'{picture} is not drawn: there is no gnuplot', file=sys.stderr)
        return
    drawn = subprocess.run(['gnuplot'], input=script.encode(), stdout=subprocess.PIPE, cwd=HERE, check=True).stdout
    if not drawn.rstrip().endswith(b'</svg>'):
        sys.exit(f'gnuplot drew no whole {picture}')
    with open(os.path.join(HERE, picture), 'wb') as f:
        f.write(drawn)
