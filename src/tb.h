/*
 * The engine's face: the only engine header that src/pg may include. It names the public headers of the rooms
 * whose calls the server's glue needs; everything behind them is private to the engine.
 */
#ifndef TB_H
#define TB_H

#include "base/base.h"
#include "block/block.h"
#include "dataset/dataset.h"
#include "hsi/hsi.h"
#include "stream/stream.h"

#endif
