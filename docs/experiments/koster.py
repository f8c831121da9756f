#!/usr/bin/env python3
"""Experiment 4, docs/experiments/koster.md.

koster.py FLEXLAB DATA    trains, and writes data/koster-*.csv
koster.py                 prints the tables of the page from these files and draws its figure
"""
import math, os, sys
import lab

PREDICTORS = ['paper', 'ngraph', 'current', 'repeat']
DRAWN = {'fc1.weight': 'weights of the first layer', 'fc1': 'its activations', 'fc1.product.grad': 'their gradients'}
SEEDS = 3
EARLY = 50  # steps
seeds = range(1, SEEDS + 1)


def train(flexlab, data):
    runs, counts, traces = [], [], []
    with lab.scratch() as top:
        out = os.path.join(top, 'out')
        lab.run(flexlab, ['--model', 'mlp2', '--data', data, '--train-limit', '12800', '--test-limit', '2000', '--batch', '32',
                          '--epochs', '1', '--max-steps', '400', '--formats',
                          'fp32,' + ','.join(f'flex16+5:{p}' for p in PREDICTORS), '--seeds', str(SEEDS),
                          '--trace-every', '1', '--average-last', '50'], out)
        for r in lab.lines(out, 'run'):
            runs.append({'predictor': r['format'].removeprefix('flex16+5:'), 'seed': r['seed'],
                         'last_loss': f'{r["last_loss"]:.6f}', 'test_accuracy': f'{r["test_accuracy"]:.4f}',
                         'saturated': r['saturated'], 'flushed': r['flushed']})
        for name in PREDICTORS:
            for seed in seeds:
                last, sums = {}, {}
                for row in lab.table(out, 'trace', f'flex16+5:{name}', seed):
                    tensor, step, e, gamma = row['tensor'], int(row['step']), int(row['e']), int(row['gamma'])
                    if tensor == 'input':
                        continue  # loaded at its own maximum
                    s = sums.setdefault(tensor, {'predictor': name, 'seed': seed, 'tensor': tensor, 'role': row['role'],
                                                 'writes': 0, 'saturated_early': 0, 'saturated_late': 0, 'changes': 0,
                                                 'unused_bits': 0.0})
                    s['writes'] += 1
                    s['saturated_early' if step <= EARLY else 'saturated_late'] += int(row['saturated']) > 0
                    s['changes'] += tensor in last and last[tensor] != e
                    s['unused_bits'] += 15 - math.log2(max(gamma, 1))
                    last[tensor] = e
                    if seed == 1 and tensor in DRAWN:
                        traces.append({'predictor': name, 'tensor': tensor, 'step': step, 'e': e, 'maximum': f'{float(row["maximum"]):.5g}',
                                       'saturated': row['saturated']})
                counts += [dict(s, unused_bits=f'{s["unused_bits"] / s["writes"]:.4f}') for s in sums.values()]
    lab.write('koster-runs.csv', runs)
    lab.write('koster-counts.csv', counts)
    lab.write('koster-traces.csv', traces)


def tables():
    counts, runs = lab.read('koster-counts.csv'), lab.read('koster-runs.csv')

    def of(name, seed, what, role=None):
        got = [r for r in counts if r['predictor'] == name and int(r['seed']) == seed and role in (None, r['role'])]
        writes = sum(int(r['writes']) for r in got)
        if what == 'unused':
            return sum(float(r['unused_bits']) * int(r['writes']) for r in got) / writes
        if what == 'changes':
            return 1000 * sum(int(r['changes']) for r in got) / writes
        return sum(int(r[what]) for r in got)

    body = []
    for name in PREDICTORS:
        unused = [of(name, s, 'unused') for s in seeds]
        change = [of(name, s, 'changes') for s in seeds]
        d = [u - of('paper', s, 'unused') for u, s in zip(unused, seeds)]
        body.append([name, ', '.join(str(of(name, s, 'saturated_early')) for s in seeds),
                     ', '.join(str(of(name, s, 'saturated_late')) for s in seeds), lab.spread(unused, 3),
                     '' if name == 'paper' else f'{lab.spread(d, 3, True)} ({lab.p_text(d)})', lab.spread(change, 1)])
    lab.markdown(['predictor', f'saturated writes, steps 1 to {EARLY}', 'later', 'unused bits', 'minus `paper` (p)',
                  'changes of e in 1,000 writes'], body)
    roles = list(dict.fromkeys(r['role'] for r in counts))
    lab.markdown(['unused bits'] + roles, [[name] + [lab.spread([of(name, s, 'unused', role) for s in seeds], 2) for role in roles]
                                           for name in PREDICTORS])
    lab.markdown(['changes of e in 1,000 writes'] + roles,
                 [[name] + [lab.spread([of(name, s, 'changes', role) for s in seeds], 1) for role in roles] for name in PREDICTORS])
    lab.markdown(['saturated writes, all seeds'] + roles,
                 [[name] + [sum(of(name, s, k, role) for s in seeds for k in ('saturated_early', 'saturated_late')) for role in roles]
                  for name in PREDICTORS])
    loss = {(r['predictor'], int(r['seed'])): float(r['last_loss']) for r in runs}
    body = [['fp32', lab.spread([loss['fp32', s] for s in seeds], 5), '', '']]
    for name in PREDICTORS:
        d = [loss[name, s] - loss['fp32', s] for s in seeds]
        body.append([name, lab.spread([loss[name, s] for s in seeds], 5), ', '.join(lab.signed(x, 5) for x in d),
                     f'{lab.spread(d, 5, True)} ({lab.p_text(d)})'])
    lab.markdown(['predictor', 'loss, last 50 steps', 'minus fp32, seed by seed', 'mean (p)'], body)
    for tensor in DRAWN:
        rows = [r for r in lab.read('koster-traces.csv') if r['tensor'] == tensor and r['predictor'] == 'paper']
        top = [float(r['maximum']) for r in rows]
        print(tensor, 'maxima', top[0], min(top), max(top), top[-1], 'e', rows[0]['e'], rows[-1]['e'])


def figure():
    rows, text, plots = lab.read('koster-traces.csv'), '', ''
    ranges = {'fc1.weight': (-4, 0), 'fc1': (2, 8), 'fc1.product.grad': (-9, -3)}
    for i, (tensor, title) in enumerate(DRAWN.items()):
        for j, name in enumerate(('paper', 'ngraph')):
            got = [r for r in rows if r['tensor'] == tensor and r['predictor'] == name]
            text += f'$maximum{i}{j} << EOD\n' + ''.join(f'{r["step"]} {r["maximum"]}\n' for r in got) + 'EOD\n'
            text += f'$room{i}{j} << EOD\n'  # where e changes, and the end
            text += ''.join(f'{r["step"]} {32767 * 2.0 ** -int(r["e"]):.5g}\n' for k, r in enumerate(got)
                            if k in (0, len(got) - 1) or r['e'] != got[k - 1]['e']) + 'EOD\n'
            lost = [r for r in got if int(r['saturated'])]
            if lost:
                text += f'$lost{i}{j} << EOD\n' + ''.join(f'{r["step"]} {r["maximum"]}\n' for r in lost) + 'EOD\n'
            plots += f'set title "{title}, {name}"\nset yrange [2.0**({ranges[tensor][0]}):2.0**({ranges[tensor][1]})]\n'
            plots += (f'plot $room{i}{j} with steps lc rgb "#1f618d" lw 1.6 title "largest number at e", '
                      f'$maximum{i}{j} with lines lc rgb "#7f8c8d" lw 1 title "maximum written"')
            plots += f', $lost{i}{j} with points lc rgb "#c0392b" pt 7 ps 0.5 title "saturated"\n' if lost else '\n'
    lab.plot(text + 'set terminal svg size 860,640 font "sans,11" background "#ffffff"\nset multiplot layout 3,2\n'
             'set logscale y 2\nset format y "2^{%L}"\nset xrange [0:400]\nset border 3\nset tics nomirror\n'
             'set grid ytics lc "#dddddd"\nset key top right samplen 1.5 font ",9"\n' + plots + 'unset multiplot\n', 'koster.svg')


if __name__ == '__main__':
    if len(sys.argv) == 3:
        train(sys.argv[1], sys.argv[2])
    elif len(sys.argv) != 1:
        sys.exit(__doc__)
    tables()
    figure()
