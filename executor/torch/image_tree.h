// Folders of images whose names are the classes: which files there are, and of which class. No
// torch, no decoding.
//
//   Tiny ImageNet                             any other
//     train/<class>/images/*.JPEG               train/<class>/*.png
//     val/images/*.JPEG                         val/<class>/*.png   (or test/)
//     val/val_annotations.txt                 without train/: <class>/*.png, every tenth
//       file TAB class TAB ...                  image of a class is for the test
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ir/status.h"

namespace xpipe::executor::nn {

struct ImageFile {
  std::string path;
  std::uint32_t label = 0;  ///< index in classes

  bool operator==(const ImageFile&) const = default;
};

struct ImageTree {
  std::string kind;                  ///< "tiny-imagenet" or "image-folder"
  std::vector<std::string> classes;  ///< in byte order of their names
  std::vector<ImageFile> train;      ///< class by class, by name
  std::vector<ImageFile> test;       ///< likewise; of Tiny ImageNet in the order of its annotations
};

/// `folder` looks like such a tree: it has a folder train, or folders with images in them.
[[nodiscard]] bool is_image_tree(const std::filesystem::path& folder);

/// Errors: BadInput, all at once: no classes, a class without images, a class of the test that is
/// none of the training's, an annotation that cannot be read (with its line) or names a missing
/// file, a test set that is missing.
[[nodiscard]] ir::Result<ImageTree> read_image_tree(const std::filesystem::path& folder);

}  // namespace xpipe::executor::nn
