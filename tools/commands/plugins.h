/* plugins.h - shared libraries with exponent predictors of the user's own. */
#ifndef FLEXLAB_PLUGINS_H
#define FLEXLAB_PLUGINS_H

/* Loads those that FLEXLAB_PREDICTORS names; their predictors are found by name from then on. */
int plugins_load(void);

#endif
