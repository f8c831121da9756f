#!/usr/bin/env python3
"""Experiment 5, docs/experiments/flushed.md.

flushed.py FLEXLAB PROGRAM DATA [PART...]   runs the parts (shares network dose places; all) and writes data/flushed-*.csv;
                                            PROGRAM is example_flushed_gradients of the build
flushed.py                                  prints the tables of the page from these files and draws its figure
"""
import csv, os, subprocess, sys
import lab

SEEDS = 3
seeds = range(1, SEEDS + 1)
POLICIES = {'conv1-flex': 'variant fp32\nconv1 gradients=flex16+5\n', 'conv1-fp32': 'variant flex16+5\nconv1 gradients=fp32\n'}
NETWORK_DOSES = {'0.001': [0, 12, 16, 18, 20], '0.0001': [0, 16, 20, 22, 24, 26]}  # of each rate
SHARE_DOSES = [0, 16, 20, 22]
DOSES = [0, 12, 16, 18, 20, 21, 22, 23, 24, 26]
PLACES = {'fc1-flex': 'variant fp32\nfc1 gradients=flex16+5\n', 'fc2-flex': 'variant fp32\nfc2 gradients=flex16+5\n'}
PLACE_DOSES = [22, 23]
OPTIMISERS = {'sgd': '0.01', 'adam': '0.0003'}


def shares(program, data):
    """What flushed values carry, in a training in fp32."""
    rows = []
    for k in SHARE_DOSES:
        for seed in seeds:
            command = [program, data, str(seed), '201', '50', str(k)]
            print(' '.join(command[1:]), file=sys.stderr, flush=True)
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True,
                                  env=dict(os.environ, OMP_NUM_THREADS='1'))
            rows += [r for r in csv.DictReader(done.stdout.splitlines()) if k == 0 or r['format'] == 'flex16+5']
    lab.write('flushed-shares.csv', rows)


def losses(out, part, dose, names=None):
    return [{'part': part, 'dose': dose, 'format': (names or {}).get(r['format'], r['format']), 'seed': r['seed'],
             'last_loss': f'{r["last_loss"]:.6f}', 'test_accuracy': f'{r["test_accuracy"]:.4f}',
             'elements': r['elements'], 'flushed': r['flushed'], 'saturated': r['saturated'],
             'clamped_high': r['clamped_high']} for r in lab.lines(out, 'run')]


def network(flexlab, data):
    """cnn6 at low rates: whole formats, one gradient alone, and gradients 2^-DOSE as large."""
    rows = []
    with lab.scratch() as top:
        for name, text in POLICIES.items():
            with open(os.path.join(top, name), 'w', encoding='utf-8') as f:
                f.write(text)
        for rate, doses in NETWORK_DOSES.items():
            common = ['--model', 'cnn6', '--data', data, '--train-limit', '6400', '--test-limit', '2000', '--batch', '32',
                      '--epochs', '1', '--seeds', str(SEEDS), '--lr', rate, '--average-last', '50', '--no-trace']
            for dose in doses:
                out = os.path.join(top, f'out{rate}-{dose}')
                formats = 'flex16+5'
                if dose == 0:
                    formats = 'fp32,flex16+5,dfp16,' + ','.join(f'policy:{top}/{n}' for n in POLICIES)
                lab.run(flexlab, common + ['--formats', formats, '--loss-scale', f'2^-{dose}'], out)
                rows += losses(out, f'cnn6, rate {rate}', dose, {f'policy:{n}': n for n in POLICIES})
    lab.write('flushed-network.csv', rows)


def below(row, k):
    """Of the elements below 2^k: their number, and the least and largest sum of squares that it allows."""
    first, count, low, high = int(row['first_bin']), 0, 0.0, 0.0
    for i, n in enumerate(map(int, row['bins'].split())):
        if first + i < k:
            count, low, high = count + n, low + n * 4.0 ** (first + i), high + n * 4.0 ** (first + i + 1)
    return count, low, high


def foresee(out, optimiser):
    """From fp32's histograms and the exponents of flex16+5 beside it: what e <= 31 flushes of gradients 2^-DOSE as large."""
    sums = {}
    for seed in seeds:
        for row in lab.table(out, 'telemetry', 'fp32', seed):
            nonzero = int(row['elements']) - int(row['zeros'])
            if row['described'] != 'true' or not nonzero or row['tensor'] not in ('fc2.grad', 'fc1.product.grad',
                                                                                  'fc2.weight.grad', 'fc1.weight.grad'):
                continue
            for dose in DOSES:
                e = min(31, int(row['flex16+5.e']) + dose) - dose
                count, low, high = below(row, -e - 1)
                square = float(row['l2']) ** 2
                s = sums.setdefault((dose, seed, row['tensor']), [])
                s.append((count / nonzero, min(1.0, low / square), min(1.0, high / square)))
    return [{'optimiser': optimiser, 'dose': d, 'seed': s, 'tensor': t, 'rows': len(x),
             'flushed': f'{lab.mean([v[0] for v in x]):.4g}', 'norm2_at_least': f'{lab.mean([v[1] for v in x]):.3g}',
             'norm2_at_most': f'{lab.mean([v[2] for v in x]):.3g}'} for (d, s, t), x in sums.items()]


def dose(flexlab, data):
    """mlp2 with gradients of the loss 2^-DOSE as large, which the update takes out again."""
    rows, counted = [], []
    for optimiser, rate in OPTIMISERS.items():
        for k in DOSES:
            with lab.scratch() as top:
                out = os.path.join(top, 'out')
                lab.run(flexlab, ['--model', 'mlp2', '--data', data, '--train-limit', '6400', '--test-limit', '2000',
                                  '--batch', '32', '--epochs', '2', '--seeds', str(SEEDS), '--average-last', '50', '--formats',
                                  'fp32,flex16+5,dfp16' if k == 0 else 'flex16+5,dfp16' if k in (22, 26) else 'flex16+5',
                                  '--optimizer', optimiser, '--lr', rate, '--loss-scale', f'2^-{k}', '--allow-divergence',
                                  '--no-trace'] + (['--telemetry', '50:*.grad', '--shadow', 'flex16+5'] if k == 0 else []), out)
                rows += losses(out, optimiser, k)
                if k == 0:
                    counted += foresee(out, optimiser)
    lab.write('flushed-dose.csv', rows)
    lab.write('flushed-counted.csv', counted)


def places(flexlab, data):
    """mlp2 in fp32 but for the gradients of one layer."""
    rows = []
    with lab.scratch() as top:
        for name, text in PLACES.items():
            with open(os.path.join(top, name), 'w', encoding='utf-8') as f:
                f.write(text)
        for optimiser, rate in OPTIMISERS.items():
            for k in PLACE_DOSES:
                out = os.path.join(top, f'{optimiser}{k}')
                lab.run(flexlab, ['--model', 'mlp2', '--data', data, '--train-limit', '6400', '--test-limit', '2000',
                                  '--batch', '32', '--epochs', '2', '--seeds', str(SEEDS), '--average-last', '50', '--formats',
                                  'fp32,' + ','.join(f'policy:{top}/{n}' for n in PLACES), '--optimizer', optimiser, '--lr', rate,
                                  '--loss-scale', f'2^-{k}', '--allow-divergence', '--no-trace'], out)
                rows += losses(out, optimiser, k, {f'policy:{n}': n for n in PLACES})
    lab.write('flushed-places.csv', rows)


def short(x):
    return f'{x:.2g}' if x < 10 else f'{x:.0f}'


def share_tables():
    rows = lab.read('flushed-shares.csv')
    percent = lambda x: short(100 * x)

    def line(k, tensor, name):
        got = [r for r in rows if (int(r['dose']), r['tensor'], r['format']) == (k, tensor, name) and int(r['step']) > 1]
        span = lambda f, form: f'{form(min(map(f, got)))} … {form(max(map(f, got)))}'
        return [tensor, name, span(lambda r: int(r['flushed']) / int(r['nonzero']), percent),
                span(lambda r: float(r['norm2_flushed']), lambda x: f'{x:.1e}'),
                span(lambda r: float(r['update_of_flushed']), percent),
                span(lambda r: float(r['update_of_rounding']), percent), span(lambda r: float(r['other_batch']), percent)]

    heads = ['gradient', 'format', 'flushed, % of elements', 'of the squared norm', 'of the weight gradient, %',
             'all rounding, %', 'step before, %']
    tensors = sorted({r['tensor'] for r in rows})
    lab.markdown(heads, [line(0, t, name) for t in tensors for name in ('flex16+5', 'dfp16')])
    lab.markdown(['dose'] + heads[:1] + heads[2:-1],
                 [[k] + [c for i, c in enumerate(line(k, t, 'flex16+5')[:-1]) if i != 1] for k in SHARE_DOSES[1:] for t in tensors])


def loss_table(name, part, digits=5):
    rows = [r for r in lab.read(name) if r['part'] == part]
    loss = {(r['format'], int(r['dose']), int(r['seed'])): float(r['last_loss']) for r in rows}
    body = []
    for key in dict.fromkeys((r['format'], int(r['dose'])) for r in rows):
        got = [r for r in rows if (r['format'], int(r['dose'])) == key]
        d = [loss[(*key, s)] - loss['fp32', min(k[1] for k in loss), s] for s in seeds]
        base = key[0] == 'fp32'
        body.append([key[0], key[1], f'{100 * sum(int(r["flushed"]) for r in got) / sum(int(r["elements"]) for r in got):.2f}',
                     lab.spread([loss[(*key, s)] for s in seeds], digits),
                     '' if base else lab.spread(d, digits, True), '' if base else ', '.join(lab.signed(x, digits) for x in d),
                     '' if base else lab.p_text(d)])
    lab.markdown([part, 'dose', 'flushed, % of all', 'last loss', 'minus fp32', 'of each seed', 'p'], body)


def counted_table():
    rows = lab.read('flushed-counted.csv')
    tensors = list(dict.fromkeys(r['tensor'] for r in rows))
    for optimiser in OPTIMISERS:
        lab.markdown([optimiser] + tensors, [[k] + [
            '{:.0f} / {}'.format(
                100 * lab.mean([float(r['flushed']) for r in rows if key(r) == (optimiser, k, t)]),
                ' to '.join(short(100 * lab.mean([float(r[c]) for r in rows if key(r) == (optimiser, k, t)]))
                        for c in ('norm2_at_least', 'norm2_at_most'))) for t in tensors] for k in DOSES])


def key(r):
    return r['optimiser'], int(r['dose']), r['tensor']


def figure():
    counted, rows = lab.read('flushed-counted.csv'), lab.read('flushed-dose.csv')
    text = ''
    for optimiser in OPTIMISERS:
        loss = {(r['format'], int(r['dose']), int(r['seed'])): float(r['last_loss']) for r in rows if r['part'] == optimiser}
        text += f'${optimiser} << EOD\n'
        for k in DOSES:
            d = [loss['flex16+5', k, s] - loss['fp32', 0, s] for s in seeds]
            part = lambda c: 100 * lab.mean([float(r[c]) for r in counted if key(r) == (optimiser, k, 'fc1.product.grad')])
            text += f'{k} {part("flushed"):.3f} {part("norm2_at_most"):.4f} {lab.mean(d):.5f} {min(d):.5f} {max(d):.5f}\n'
        text += 'EOD\n'
    panel = ('set title "{0}"\nplot ${0} using 1:2 with linespoints lc rgb "#7f8c8d" pt 7 ps 0.4 lw 1.6 title "flushed, % of elements", '
             '"" using 1:3 with linespoints lc rgb "#1f618d" pt 7 ps 0.4 lw 1.6 title "of the squared norm, % at most", '
             '"" using 1:(100 * $4):(100 * $5):(100 * $6) with yerrorlines lc rgb "#c0392b" pt 7 ps 0.4 lw 1.6 title "loss minus fp32, x 100"\n')
    lab.plot(text + 'set terminal svg size 860,320 font "sans,11" background "#ffffff"\nset multiplot layout 1,2\n'
             'set border 3\nset tics nomirror\nset grid ytics lc "#dddddd"\nset key top left samplen 1.5 spacing 1 font ",9"\n'
             'set xlabel "k, of gradients 2^{-k} as large"\nset xrange [0:27]\nset yrange [-2:102]\n'
             + ''.join(panel.format(o) for o in OPTIMISERS) + 'unset multiplot\n', 'flushed.svg')


if __name__ == '__main__':
    if len(sys.argv) >= 4:
        parts = sys.argv[4:] or ['shares', 'network', 'dose', 'places']
        if 'shares' in parts:
            shares(sys.argv[2], sys.argv[3])
        if 'network' in parts:
            network(sys.argv[1], sys.argv[3])
        if 'dose' in parts:
            dose(sys.argv[1], sys.argv[3])
        if 'places' in parts:
            places(sys.argv[1], sys.argv[3])
    elif len(sys.argv) != 1:
        sys.exit(__doc__)
    else:
        share_tables()
        for rate in NETWORK_DOSES:
            loss_table('flushed-network.csv', f'cnn6, rate {rate}')
        counted_table()
        for optimiser in OPTIMISERS:
            loss_table('flushed-dose.csv', optimiser)
        for optimiser in OPTIMISERS:
            loss_table('flushed-places.csv', optimiser)
        figure()
