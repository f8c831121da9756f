/* options_resolve.h - defaults and checks of options_parse once all options are read. */
#ifndef FLEXLAB_OPTIONS_RESOLVE_H
#define FLEXLAB_OPTIONS_RESOLVE_H

#include "options/options.h"

/* The optimiser and the batch, by what the model reads; then the optimiser's numbers; the formats, by the command. */
void options_resolve_model(struct settings *s);
void options_resolve_optimiser(struct settings *s);
void options_resolve_formats(struct settings *s);
/* Return a STATUS_ code; the message is printed. */
int options_resolve_telemetry(struct settings *s);
int options_check_shadows(const struct settings *s);

#endif
