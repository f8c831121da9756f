#!/usr/bin/env python3
"""Experiment 6, docs/experiments/rates.md.

rates.py FLEXLAB TEXT FOLDER   trains what FOLDER lacks and collects; TEXT is tinyshakespeare.txt
rates.py FOLDER                collects what FOLDER has into data/rates-runs.csv
rates.py                       prints the tables of the page from this file
"""
import os, sys
import lab

FORMATS = ['fp32', 'bf16', 'fp16:noscale', 'fp16', 'flex16+5', 'dfp16']
STEPS = {'gpt2x64': 400, 'lstm-char': 250}
RATES = {'gpt2x64': ['0.0007', '0.002', '0.006'], 'lstm-char': ['0.001', '0.003', '0.01']}
EDGE = ('gpt2x64', '0.006')  # fp32 again, at rates beside this one: what chance alone does there
BESIDE = ['0.0059', '0.00599999', '0.00600001', '0.0061']
SEEDS = [1, 2, 3]
TOKENS = 16 * 64  # of a step


def place(folder, model, rate):
    return os.path.join(folder, f'{model}.{rate}')


def plan():
    """Model, rate, formats of each comparison."""
    yield from ((model, rate, FORMATS) for model in STEPS for rate in RATES[model])
    yield from ((EDGE[0], rate, ['fp32']) for rate in BESIDE)


def train(flexlab, text, folder):
    os.makedirs(folder, exist_ok=True)
    for model, rate, formats in plan():
        out = place(folder, model, rate)
        if not lab.complete(out):
            lab.run(flexlab, ['--model', model, '--context', '64', '--batch', '16', '--data', f'text:{text}', '--train-limit',
                              str(STEPS[model] * TOKENS), '--test-limit', '20000', '--formats', ','.join(formats), '--seeds',
                              str(len(SEEDS)), '--epochs', '1', '--lr', rate, '--warmup', '0.05', '--average-last', '50', '--no-trace',
                              '--allow-divergence'], out)


def collect(folder):
    rows = [{'model': model, 'rate': rate} | r for model, rate, _ in plan() if lab.complete(place(folder, model, rate))
            for r in lab.results(place(folder, model, rate))]
    if not rows:
        sys.exit(f'{folder}: no finished training')
    lab.write('rates-runs.csv', rows)


def tables():
    of = {(r['model'], r['rate'], r['format'], int(r['seed'])): r for r in lab.read('rates-runs.csv')}
    for model in STEPS:
        for rate in RATES[model]:
            if (model, rate, 'fp32', 1) not in of:
                continue
            rows = []
            for name in FORMATS:
                runs = [of[model, rate, name, s] for s in SEEDS]
                lost = sum(int(r['diverged']) for r in runs)
                last = '–' if lost else lab.spread([float(r['last_loss']) for r in runs], 4)
                d = [] if lost else [float(r['last_loss']) - float(of[model, rate, 'fp32', s]['last_loss']) for s, r in zip(SEEDS, runs)]
                paired = ['', ''] if name == 'fp32' else ['–', '–'] if lost else [
                    ', '.join(lab.signed(x, 4) for x in d), f'{lab.spread(d, 4, True)} ({lab.p_text(d)})']
                rows.append([name, last] + paired + ['–' if lost else lab.spread([float(r['test_loss']) for r in runs], 4),
                            f'{lost} of {len(runs)}' if lost else '0', ', '.join(r['saturated'] for r in runs),
                            ', '.join(f'{100 * int(r["flushed"]) / int(r["elements"]):.2f} %' for r in runs),
                            ', '.join(r['skipped'] for r in runs)])
            print(f'{model}, peak rate {rate}, {STEPS[model]} steps')
            lab.markdown(['format', 'loss, last 50 steps', 'minus fp32', 'mean ± sd (p)', 'test loss', 'diverged', 'saturated', 'flushed',
                          'skipped'], rows)
    print(f'fp32, {EDGE[0]}, rates beside {EDGE[1]}')
    rates = sorted(BESIDE + [EDGE[1]], key=float)
    last = {rate: [float(of[EDGE[0], rate, 'fp32', s]['last_loss']) for s in SEEDS] for rate in rates}
    lab.markdown(['rate of fp32', 'loss, last 50 steps, seed by seed', f'minus rate {EDGE[1]}', 'mean ± sd (p)'],
                 [[rate, ', '.join(f'{x:.4f}' for x in last[rate])] + (['', ''] if rate == EDGE[1] else [
                     ', '.join(lab.signed(x, 4) for x in d), f'{lab.spread(d, 4, True)} ({lab.p_text(d)})'])
                  for rate in rates for d in [[a - b for a, b in zip(last[rate], last[EDGE[1]])]]])


if __name__ == '__main__':
    if len(sys.argv) == 4:
        train(*sys.argv[1:])
        collect(sys.argv[3])
    elif len(sys.argv) == 2:
        collect(sys.argv[1])
    elif len(sys.argv) == 1:
        tables()
    else:
        sys.exit(__doc__)
