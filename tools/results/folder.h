/* folder.h - the folder of results. New results are made in a folder of their own inside it and take their places all
 * together when the run is over: until then, and if anything fails, earlier results stay as they are. */
#ifndef FLEXLAB_FOLDER_H
#define FLEXLAB_FOLDER_H

#include "base/lock.h"
#include <stdbool.h>

struct folder {
    char *path; /* --out */
    char *made; /* where the new results are made, PATH/flexlab.part */
    char
        *set_apart; /* where an incomplete run leaves its results if PATH holds earlier ones, PATH/flexlab.incomplete */
    char *resume;   /* the checkpoints until all is trained, PATH/flexlab.resume */
    bool replaces;  /* there are earlier results, to be replaced by complete ones */
    bool keeps_made; /* publishing failed: the results remain for the user to save */
    struct lock lock;
};

/* Names of the traces and files of telemetry that a run writes; NULL past the last. */
typedef const char *(*folder_trace_fn)(void *context, int i);

/* Makes the folder with its parents if missing, locks it, removes what a killed process left, and checks that it can be
 * written and holds neither results nor checkpoints of unfinished runs, or with `force` that they can be replaced.
 * `trace` names the traces to come. Returns a STATUS_ code, the message is printed; folder_close is needed in any
 * case. */
int folder_open(struct folder *f, const char *path, bool force, folder_trace_fn trace, void *context);
/* The same to resume from the checkpoints in this folder, whose results so far will be replaced. */
int folder_open_again(struct folder *f, const char *path, folder_trace_fn trace, void *context);
/* The files from which to resume: a single training has its checkpoint, FOLDER/flexlab.resume/resume.safetensors;
 * several runs have their options, FOLDER/flexlab.resume/options, beside folders with the checkpoint of each. To be
 * freed. */
char *folder_resume_file(const char *path);
char *folder_options_file(const char *path);
/* The command that can be resumed in that folder, "train" or "compare"; NULL: none. To be freed. */
char *folder_under_way(const char *path);
/* Makes f->resume if missing, and empties it unless `again`. */
int folder_make_resume(const struct folder *f, bool again);
/* Whether there is a checkpoint in f->resume, of a training alone or of any run. */
bool folder_has_checkpoint(const struct folder *f);
/* Stores the options of several runs, a text whose first word is the command. */
int folder_keep_options(const struct folder *f, const char *text);
/* The folder of a run's checkpoints, made if missing; to be freed, NULL after a failure, which is reported. */
char *folder_make_run(const struct folder *f, const char *label, unsigned long long seed);
/* The checkpoint in such a folder, NULL if there is none; to be freed. */
char *folder_checkpoint_in(const char *directory);
/* Makes the networks in f->resume results that folder_publish publishes. */
int folder_take_networks(const struct folder *f);
/* Removes f->resume after the results are published: nothing is left to resume. */
int folder_remove_resume(const struct folder *f);
/* Puts what was made in its place: earlier results are removed and the new files take their names. Results that are not
 * complete replace no earlier ones: they go to f->set_apart. On failure the earlier results are as they were, and a
 * message says where the new ones are. */
int folder_publish(struct folder *f, bool complete);
/* If the program has to exit before folder_publish (out of memory), what was made so far moves to f->set_apart. f must
 * live until folder_close. */
void folder_rescue(struct folder *f);
/* Does so now, before an end without exit. */
void folder_rescue_now(void);
/* Names of a run's trace and of a file of its telemetry ("jsonl", "csv") in the folder, to be freed. */
char *folder_trace_name(const char *label, unsigned long long seed);
char *folder_telemetry_name(const char *label, unsigned long long seed, const char *ending);
/* Removes what was not published, releases the lock and frees the memory. */
void folder_close(struct folder *f);

#endif
