/* data_folder.h - the files of a folder of classes. */
#ifndef FL_DATA_FOLDER_H
#define FL_DATA_FOLDER_H

#include "flexlab/data.h"
#include <stdint.h>

struct fl_data_files {
    int64_t count, room;
    struct fl_data_listed {
        char *path;
        uint16_t label;
    } * file;
    int classes;
};

/* The image files of DIR/train/CLASS/, or of DIR/test/CLASS/ (DIR/val/CLASS/ if there is none), by class and name, both
 * in byte order. Classes are those of DIR/train, counted from 0. Names that begin with a point are skipped; anything
 * else that does not belong there is an error. Free the files after a failure too. */
tensor_status fl_data_list(struct fl_data_files *files, const char *directory, data_split split);
void fl_data_files_free(struct fl_data_files *files);

#endif
