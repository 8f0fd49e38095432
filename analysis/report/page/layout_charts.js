// Layouts of ranks against each other.

function layoutsName({ranks, scaling}) {
  return `${plural(ranks, 'rank')}, ${scaling.replace('_', ' ')} scaling`;
}

// What each layout spends on as many examples as the fastest trains in a step.
function layoutBars({rows}) {
  const examples = cellOf(rows[0]).global_batch;
  return rows.filter((row) => row.ledger !== null).map((row) => {
    const {trainer, global_batch} = study.cells[row.cell];
    const parts = Object.entries(study.ledgers[row.ledger].critical);
    return {label: trainer, name: trainer,
            parts: Object.fromEntries(parts.map(([key, seconds]) => [key, seconds * examples / global_batch]))};
  });
}

function layoutTable(part, compared, place) {
  const ledger = (key) => (row) => (row.ledger === null ? null : study.ledgers[row.ledger].critical[key]);
  const along = (axis) => ({...numberColumn(`${axis} ms`, `exposed_${axis}_seconds`, ledger(`exposed_${axis}`), inMs),
                            hidden: compared.rows.every((row) => !ledger(`exposed_${axis}`)(row))});
  const share = (title, key) => ({...numberColumn(title, key, (row) => cellOf(row)[key], percent),
                                  hidden: compared.rows.every((row) => cellOf(row)[key] === null)});
  table(part, `layout-table-${place}`, layoutsName(compared), [
    textColumn('layout', 'layout', (row) => cellOf(row).trainer),
    numberColumn('batch/rank', 'batch_per_rank', (row) => cellOf(row).global_batch / compared.ranks),
    rateColumn(study.rate_unit, (row) => cellOf(row).rate),
    intervalColumn('rate', (row) => row.rate_interval, (n) => digits(n, 4)),
    numberColumn('relative time', 'relative_time', (row) => row.behind),
    intervalColumn('relative_time', (row) => (row === compared.rows[0] ? null : row.behind_interval), digits),
    textColumn('separated', 'separated_from_the_fastest', (row) => (row === compared.rows[0] ? 'fastest' : row.separated ? 'yes' : 'no')),
    numberColumn('memory', 'peak_bytes', (row) => cellOf(row).peak_bytes || null, bytes),
    share('MFU', 'mfu'),
    share('memory bandwidth', 'memory_share'),
    ...['tp', 'cp', 'pp', 'dp'].map(along),
    numberColumn('bubble ms', 'bubble_seconds', ledger('bubble'), inMs),
  ], compared.rows);
}

// What //analysis:plan predicts for the recorded layouts, and what its choices cost.
function planScoreTables(part) {
  if (study.plan_score === null) return;
  const {layouts, choices, summary} = study.plan_score;
  const hosts = {...numberColumn('hosts', 'hosts', (row) => row.hosts, whole), hidden: layouts.every((row) => row.hosts === 1)};
  table(part, 'plan-score-table', 'The planner\'s predictions of these layouts', [
    textColumn('layout', 'layout', (row) => row.name),
    textColumn('model', 'model', (row) => row.model),
    numberColumn('ranks', 'ranks', (row) => row.ranks, whole),
    hosts,
    numberColumn('planned ms', 'planned_seconds', (row) => row.planned_seconds, inMs),
    intervalColumn('planned_seconds', (row) => row.interval, inMs),
    numberColumn('measured ms', 'measured_seconds', (row) => row.measured_seconds, inMs),
    numberColumn('error', 'error', (row) => row.error, signedPercent),
    textColumn('in the interval', 'covered', (row) => (row.covered ? 'yes' : 'no')),
    numberColumn('planned memory', 'planned_bytes', (row) => row.planned_bytes, bytes),
    numberColumn('measured memory', 'measured_bytes', (row) => row.measured_bytes || null, bytes),
  ], layouts);
  table(part, 'plan-choice-table', 'The planner\'s first choice and the fastest measured', [
    textColumn('first choice', 'choice', (row) => row.choice),
    textColumn('fastest measured', 'fastest', (row) => row.fastest),
    textColumn('model', 'model', (row) => row.model),
    numberColumn('ranks', 'ranks', (row) => row.ranks, whole),
    hosts,
    numberColumn('batch', 'global_batch', (row) => row.global_batch, whole),
    numberColumn('of layouts', 'layouts', (row) => row.layouts, whole),
    numberColumn('choice ms', 'choice_seconds', (row) => row.choice_seconds, inMs),
    numberColumn('fastest ms', 'fastest_seconds', (row) => row.fastest_seconds, inMs),
    numberColumn('regret', 'regret', (row) => row.regret, percent),
  ], choices);
  part.append(element('p', {}, ...prose(`The planner (//analysis:plan) on these layouts, from runs without communication and comm_bench: ${summary}`)));
}

function addLayouts() {
  const part = section(
      'layouts', 'Which layout of the ranks',
      'What the critical rank of each layout spends on the examples that the fastest trains in a step; the fastest first. ' +
          'The 95 % intervals of the relative times are simultaneous over all pairs of layouts: a layout is separated from the fastest if its interval lies above 1.');
  if (study.layouts.length === 0) {
    missing(part, 'No two layouts did the same work on as many ranks. A study that compares some:',
            './bazelw run //:study -- --layouts=auto --model=gpt');
    planScoreTables(part);
    return;
  }
  const largest = Math.max(...study.layouts.map(({ranks}) => ranks));
  let shown = study.layouts.findIndex(({ranks}) => ranks === largest);
  const words = element('p');
  const tell = () => words.replaceChildren(...prose(study.layouts[shown].advice));
  let draw = () => {};
  select(controls(part), 'Compared', study.layouts.map(layoutsName), shown, (place) => {
    shown = place;
    tell();
    draw();
  });
  draw = chart(part, 'layout-bars', 'Parts of the time that each layout takes for the same examples',
               (look, width) => partsFigure(look, width, layoutBars(study.layouts[shown]), false, 'ms for the same examples'));
  part.append(words);
  tell();
  study.layouts.forEach((compared, place) => layoutTable(part, compared, place));
  planScoreTables(part);
}
