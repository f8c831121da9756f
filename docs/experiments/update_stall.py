#!/usr/bin/env python3
"""Experiment 3, docs/experiments/update-stall.md.

update_stall.py FLEXLAB DATA            trains everything and writes data/update-stall-runs.csv and -updates.csv
update_stall.py outlier PROGRAM DATA    the same for -outlier.csv; PROGRAM is example_outlier_weight of the build
update_stall.py                         prints the tables of the page from these files and draws its figure
"""
import math, os, subprocess, sys
import lab

FORMATS = ['fp32', 'fp16', 'fp16:nomaster', 'fp16-sr', 'bf16', 'bf16:nomaster', 'bf16-sr', 'flex16+5',
           'flex16+5-paper', 'flex16+5-sr', 'dfp16', 'dfp16:nomaster']
NEAREST = ['bf16:nomaster', 'fp16:nomaster', 'flex16+5-paper', 'dfp16:nomaster']
RATES = [7, 10, 13, 16]  # the learning rate is 2^-RATE
SEEDS = 3
BITS = {'fp32': 24, 'fp16:nomaster': 11, 'bf16:nomaster': 8}  # of a mantissa


def below(row, k):
    """Elements of a telemetry row above 0 and below 2^k: whole bins of its histogram."""
    first = int(row['first_bin'])
    return sum(n for i, n in enumerate(map(int, row['bins'].split())) if first + i < k)


def lost_float(weight, velocity, rate, bits, least):
    """|rate v| < half a last place of w, |w| and |v| as independent: w in [2^k, 2^(k+1)) has the half place 2^(k-bits)."""
    first, counts = int(weight['first_bin']), list(map(int, weight['bins'].split()))
    moving = int(velocity['elements']) - int(velocity['zeros'])
    share = sum(n * below(velocity, max(first + i, least) - bits + rate) for i, n in enumerate(counts))
    return share / int(weight['elements'])  # weights that are 0 lose nothing


def lost_shared(velocity, rate, e):
    return below(velocity, rate - e - 1)


def exponent(largest, name):
    """That the format's rule comes to for weights of this largest magnitude, steady (docs/autoflex.md)."""
    if name == 'dfp16:nomaster':
        e = 14 - math.floor(math.log2(largest))
        return e if round(largest * 2.0**e) <= 32767 else e - 1
    e = 15
    for _ in range(4):
        e = min(31, 15 - math.ceil(math.log2(2 * (largest + 100 * 2.0**-e))))
    return e


def foreseen(name, weight, velocity, rate, e):
    if name in BITS:
        return lost_float(weight, velocity, rate, BITS[name], -14 if name.startswith('fp16') else -126)
    return lost_shared(velocity, rate, e)


def rows_of(folder, name, seed):
    """{step: {parameter: (row of the weight, row of its velocity)}}"""
    weights, velocities = {}, {}
    for row in lab.table(folder, 'telemetry', name, seed):
        if row['role'] == 'weight':
            weights[int(row['step']), row['tensor']] = row
        elif row['role'] == 'momentum':
            velocities[int(row['step']), row['tensor'].removesuffix('.momentum')] = row
    steps = {}
    for (step, tensor), row in weights.items():
        if row['update_moved'] and (step, tensor) in velocities:
            steps.setdefault(step, {})[tensor] = (row, velocities[step, tensor])
    return steps


def train(flexlab, data):
    runs, lost = [], []
    for rate in RATES:
        with lab.scratch() as top:
            out = os.path.join(top, 'out')
            lab.run(flexlab, ['--model', 'mlp2', '--data', data, '--train-limit', '6400', '--test-limit', '2000',
                              '--batch', '32', '--epochs', '2', '--formats', ','.join(FORMATS), '--seeds', str(SEEDS),
                              '--lr', repr(2.0**-rate), '--schedule', 'constant', '--average-last', '50',
                              '--telemetry', '50:*.weight,*.bias,*.momentum', '--no-trace'], out)
            for r in lab.lines(out, 'run'):
                runs.append({'rate': f'2^-{rate}', 'format': r['format'], 'seed': r['seed'],
                             'first_loss': f'{r["first_loss"]:.6f}', 'last_loss': f'{r["last_loss"]:.6f}',
                             'test_loss': f'{r["test_loss"]:.6f}', 'test_accuracy': f'{r["test_accuracy"]:.4f}',
                             'saturated': r['saturated'], 'skipped': r['skipped'], 'diverged': int(r['diverged'])})
            for seed in range(1, SEEDS + 1):
                base = rows_of(out, 'fp32', seed)
                for name in FORMATS:
                    for step, tensors in sorted(rows_of(out, name, seed).items()):
                        own = before = None
                        if name in NEAREST:
                            own = sum(foreseen(name, w, v, rate, int(w['e'])) for w, v in tensors.values())
                            before = sum(foreseen(name, w, v, rate,
                                                  0 if name in BITS else exponent(float(w['largest']), name))
                                         for w, v in base[step].values())
                        meant = sum(int(w['elements']) - int(v['zeros']) for w, v in tensors.values())
                        lost.append({'rate': f'2^-{rate}', 'format': name, 'seed': seed, 'step': step, 'meant': meant,
                                     'moved': sum(int(w['update_moved']) for w, _ in tensors.values()),
                                     'lost_counted': '' if own is None else round(own),
                                     'lost_foreseen': '' if before is None else round(before)})
    lab.write('update-stall-runs.csv', runs)
    lab.write('update-stall-updates.csv', lost)


OUTLIER_FORMATS = ['fp32', 'fp16:nomaster', 'bf16:nomaster', 'flex16+5-paper', 'dfp16:nomaster', 'flex16+5',
                   'flex16+5-sr', 'dfp16']
FACTORS = [0, 16, 256]  # 0: nothing is planted


def outlier(program, data):
    rows = []
    for factor in FACTORS:
        for name in OUTLIER_FORMATS:
            for seed in range(1, SEEDS + 1):
                command = [program, name, str(factor), data, str(seed), '201', repr(2.0**-10)]
                print(' '.join(command[1:]), file=sys.stderr, flush=True)
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True,
                                      env=dict(os.environ, OMP_NUM_THREADS='1'))
                cells = done.stdout.strip().split(',')
                rows.append(dict(zip(['format', 'factor', 'seed', 'meant', 'moved', 'last_loss'], cells)))
    lab.write('update-stall-outlier.csv', rows)


def outlier_tables():
    rows = {(r['format'], int(r['factor']), int(r['seed'])): r for r in lab.read('update-stall-outlier.csv')}
    seeds = range(1, SEEDS + 1)
    body = []
    for name in OUTLIER_FORMATS:
        line = [name]
        for factor in FACTORS:
            got = [rows[name, factor, s] for s in seeds]
            lost = [100 * (1 - int(r['moved']) / int(r['meant'])) for r in got]
            d = [float(rows[name, factor, s]['last_loss']) - float(rows['fp32', factor, s]['last_loss']) for s in seeds]
            line += [f'{min(lost):.1f} … {max(lost):.1f}', lab.spread([float(r['last_loss']) for r in got], 5)
                     if name == 'fp32' else f'{lab.spread(d, 5, True)} (p {lab.p_text(d)})']
        body.append(line)
    heads = [f'{what}, {f or "none"}' for f in FACTORS for what in ('lost, %', 'loss')]
    lab.markdown(['outlier'] + heads, body)


def tables():
    runs, lost = lab.read('update-stall-runs.csv'), lab.read('update-stall-updates.csv')
    loss = {(r['rate'], r['format'], int(r['seed'])): float(r['last_loss']) for r in runs}
    rates = [f'2^-{k}' for k in RATES]
    seeds = range(1, SEEDS + 1)

    def share(rate, name, seed, column):
        """Mean over the rows behind the first of the part of the meant updates."""
        part = []
        for r in lost:
            if (r['rate'], r['format'], int(r['seed'])) == (rate, name, seed) and int(r['step']) > 1:
                n = int(r['meant']) - int(r['moved']) if column == 'lost' else int(r[column])
                part.append(n / int(r['meant']))
        return lab.mean(part)

    lab.markdown(['lost, % of the meant updates'] + rates, [[name] + [
        ' → '.join(f'{100 * lab.mean([share(rate, name, s, c) for s in seeds]):.1f}'
                   for c in ('lost_foreseen', 'lost_counted', 'lost')) for rate in rates] for name in NEAREST])
    for column in 'lost_counted', 'lost_foreseen':
        worst = max((abs(share(rate, name, s, column) - share(rate, name, s, 'lost')), name, rate, s)
                    for name in NEAREST for rate in rates for s in seeds)
        print(f'largest |{column} - lost| of a run: {100 * worst[0]:.2f} points {worst[1:]}')
    print()
    body = []
    for name in FORMATS:
        line = [name]
        for rate in rates:
            d = [loss[rate, name, s] - loss[rate, 'fp32', s] for s in seeds]
            line.append(lab.spread([loss[rate, name, s] for s in seeds], 5) if name == 'fp32'
                        else f'{lab.spread(d, 5, True)} ({lab.p_text(d)})')
        body.append(line)
    lab.markdown(['loss; minus fp32 (p)'] + rates, body)
    lab.markdown(['not moved, %'] + rates, [[name] + [lab.spread([100 * share(rate, name, s, 'lost') for s in seeds], 2)
                                                      for rate in rates] for name in FORMATS if name not in NEAREST])
    for rate in rates:  # what the text says of every seed
        for name in FORMATS[1:]:
            d = [loss[rate, name, s] - loss[rate, 'fp32', s] for s in seeds]
            print(rate, name, ', '.join(lab.signed(x, 5) for x in d))
    first = {(r['format'], r['seed']): float(r['first_loss']) for r in runs}
    print('first loss of fp32:', lab.spread([first['fp32', str(s)] for s in seeds], 5))
    print('saturated', sum(int(r['saturated']) for r in runs), 'skipped', sum(int(r['skipped']) for r in runs),
          'diverged', sum(int(r['diverged']) for r in runs), '\n')


def figure():
    lost = lab.read('update-stall-updates.csv')
    rates = [f'2^-{k}' for k in RATES]
    colours = {'bf16:nomaster': '#c0392b', 'fp16:nomaster': '#d68910', 'flex16+5-paper': '#1f618d',
               'dfp16:nomaster': '#1e8449'}
    blocks, plots = [], []
    for i, rate in enumerate(rates):
        plots.append(f'set title "rate 2^{{{rate[2:]}}}"\nplot ' + ', '.join(
            f'$d{i}_{j} using 1:2 with lines lc rgb "{colours[n]}" lw 2 title "{n}"'
            for j, n in enumerate(NEAREST)))
        for j, name in enumerate(NEAREST):
            points = {}
            for r in lost:
                if r['rate'] == rate and r['format'] == name and int(r['step']) > 1:
                    points.setdefault(int(r['step']), []).append(100 * (1 - int(r['moved']) / int(r['meant'])))
            blocks.append(f'$d{i}_{j} << EOD\n' + ''.join(f'{s} {lab.mean(v):.3f}\n' for s, v in sorted(points.items()))
                          + 'EOD\n')
    lab.plot(''.join(blocks) + 'set terminal svg size 900,300 font "sans,11" background "#ffffff"\n'
             'set multiplot layout 1,4\nset yrange [0:100]\nset xrange [0:400]\nset xtics 200\nset grid ytics lc "#dddddd"\n'
             'set border 3\nset tics nomirror\nset key top right samplen 1 spacing 0.9 font ",9"\n'
             'set ylabel "updates lost, %" offset 1.5\nset xlabel "step"\n'
             + plots[0] + '\nunset key\nset ylabel\n' + '\n'.join(plots[1:]) + '\nunset multiplot\n', 'update-stall.svg')


if __name__ == '__main__':
    if len(sys.argv) == 4 and sys.argv[1] == 'outlier':
        outlier(sys.argv[2], sys.argv[3])
    elif len(sys.argv) == 3:
        train(sys.argv[1], sys.argv[2])
    elif len(sys.argv) != 1:
        sys.exit(__doc__)
    tables()
    outlier_tables()
    figure()
