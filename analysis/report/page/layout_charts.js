// Compares layouts of ranks.

function layoutsName({ranks, scaling}) {
  return `${plural(ranks, 'rank')}, ${scalingTitle(scaling)}`;
}

// Returns the parts of each layout's time for as many examples as the fastest trains in a step.
function layoutBars({rows}) {
  const examples = cellOf(rows[0]).global_batch;
  return rows.filter((row) => row.ledger !== null).map((row) => {
    const {trainer, global_batch} = study.cells[row.cell];
    const parts = Object.entries(study.ledgers[row.ledger].critical);
    return {label: trainer, name: trainer,
            parts: Object.fromEntries(parts.map(([key, seconds]) => [key, seconds * examples / global_batch]))};
  });
}

function addLayouts() {
  const part = section(
      'layouts', 'Which layout of ranks to use',
      'Time of the critical rank of each layout for as many examples as the fastest layout trains in a step; the fastest first. ' +
          'The 95 % intervals of the relative times are simultaneous over all pairs of layouts: a layout is separated from the fastest if its interval lies above 1.');
  if (study.layouts.length === 0) {
    missing(part, 'No two layouts did the same work on the same number of ranks. A study that compares layouts:',
            './bazelw run //:study -- --layouts=auto --model=gpt');
    addTables(part, study.tables, 'plan-');
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
  addTables(part, study.tables, 'layout-', 'plan-');
}
