#include "executor/torch/image_tree.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "executor/torch/image_codec.h"
#include "ir/files.h"
#include "ir/utf8.h"

namespace xpipe::executor::nn {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHeldOut = 10;  // every tenth image, where there is no test set

class TreeReader {
 public:
  explicit TreeReader(fs::path folder) : folder_(std::move(folder)) { tree_.kind = "image-folder"; }

  ir::Result<ImageTree> read() {
    std::error_code ignored;
    if (fs::is_directory(folder_ / "train", ignored)) {
      tree_.train = read_classes(folder_ / "train", true);
      read_test();
    } else {
      hold_out(read_classes(folder_, true));
    }
    if (error_.diagnostics.empty()) {
      return std::move(tree_);
    }
    return std::move(error_);
  }

 private:
  void fault(const fs::path& where, std::string code, std::string what) {
    error_.diagnostics.push_back({std::move(code), where.string(), std::move(what)});
  }

  /// Names in `folder`, in byte order.
  std::vector<std::string> names_in(const fs::path& folder, bool folders) {
    std::vector<std::string> names;
    std::error_code failed;
    for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
         entry.increment(failed)) {
      std::error_code ignored;
      const std::string name = entry->path().filename().string();
      if (folders ? entry->is_directory(ignored) && !name.starts_with(".")
                  : entry->is_regular_file(ignored) && has_image_suffix(name)) {
        names.push_back(name);
      }
    }
    if (failed) {
      fault(folder, "unreadable", "cannot be listed: " + failed.message());
    }
    std::ranges::sort(names);
    return names;
  }

  /// The images of every class folder below `folder`; of the training set, the folders are the
  /// classes.
  std::vector<ImageFile> read_classes(const fs::path& folder, bool is_training) {
    std::vector<ImageFile> files;
    const std::vector<std::string> classes = names_in(folder, true);
    if (is_training) {
      tree_.classes = classes;
      if (classes.empty()) {
        fault(folder, "no-classes", "holds no folders; want one a class, with its images");
      }
    }
    for (const std::string& name : classes) {
      const std::optional<std::uint32_t> label = label_of(name);
      if (!label) {
        fault(folder / name, "unknown-class",
              "is no class of the training set, which has " + std::to_string(tree_.classes.size()));
        continue;
      }
      fs::path images = folder / name;
      std::error_code ignored;
      if (fs::is_directory(images / "images", ignored)) {
        images /= "images";
      }
      const std::vector<std::string> found = names_in(images, false);
      if (found.empty()) {
        fault(images, "no-images", "holds no .jpg, .jpeg or .png file");
      }
      for (const std::string& image : found) {
        files.push_back({(images / image).string(), *label});
      }
    }
    return files;
  }

  [[nodiscard]] std::optional<std::uint32_t> label_of(std::string_view name) const {
    const auto found = std::ranges::lower_bound(tree_.classes, name);
    if (found == tree_.classes.end() || *found != name) {
      return std::nullopt;
    }
    return static_cast<std::uint32_t>(found - tree_.classes.begin());
  }

  void read_test() {
    std::error_code ignored;
    if (fs::exists(folder_ / "val" / "val_annotations.txt", ignored)) {
      tree_.kind = "tiny-imagenet";
      read_annotations();
      return;
    }
    for (const char* name : {"val", "test"}) {
      if (fs::is_directory(folder_ / name, ignored)) {
        tree_.test = read_classes(folder_ / name, false);
        return;
      }
    }
    fault(folder_, "no-test-set",
          "has a folder train and neither val nor test; want one of them with the same classes");
  }

  void read_annotations() {
    const fs::path file = folder_ / "val" / "val_annotations.txt";
    const ir::Result<std::string> text = ir::read_file(file.string());
    if (!text.ok()) {
      error_.diagnostics.insert(error_.diagnostics.end(), text.error().diagnostics.begin(),
                                text.error().diagnostics.end());
      return;
    }
    std::string_view rest = text.value();
    for (std::size_t line = 1; !rest.empty(); ++line) {
      const std::string_view row = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), row.size() + 1));
      read_annotation(file, line, row);
    }
    if (tree_.test.empty() && error_.diagnostics.empty()) {
      fault(file, "no-images", "has no lines");
    }
  }

  void read_annotation(const fs::path& file, std::size_t line, std::string_view row) {
    const fs::path where = file.string() + ", line " + std::to_string(line);
    const std::size_t tab = row.find('\t');
    if (tab == std::string_view::npos || tab == 0 ||
        row.substr(0, tab).find('/') != std::string_view::npos) {
      fault(where, "bad-annotation",
            "found '" + ir::one_line(row) + "', expected a file name, a tab and a class");
      return;
    }
    const std::string_view name = row.substr(tab + 1, row.find_first_of("\t\r", tab + 1) - tab - 1);
    const std::optional<std::uint32_t> label = label_of(name);
    const fs::path image = folder_ / "val" / "images" / row.substr(0, tab);
    std::error_code ignored;
    if (!label) {
      fault(where, "unknown-class", "'" + ir::one_line(name) + "' is no class of the training set");
    } else if (!fs::is_regular_file(image, ignored)) {
      fault(where, "no-file", "names " + image.string() + ", which is not there");
    } else {
      tree_.test.push_back({image.string(), *label});
    }
  }

  /// Every tenth image of a class to the test, at least one.
  void hold_out(const std::vector<ImageFile>& files) {
    std::size_t of_class = 0;
    for (std::size_t i = 0; i < files.size(); ++i) {
      of_class = i > 0 && files[i].label == files[i - 1].label ? of_class + 1 : 0;
      (of_class % kHeldOut == 0 ? tree_.test : tree_.train).push_back(files[i]);
    }
    if (tree_.train.empty() && error_.diagnostics.empty()) {
      fault(folder_, "too-few-images", "leaves no image to train on beside those of the test");
    }
  }

  fs::path folder_;
  ImageTree tree_;
  ir::Error error_{ir::ErrorKind::BadInput, {}};
};

}  // namespace

bool is_image_tree(const fs::path& folder) {
  std::error_code failed;
  if (fs::is_directory(folder / "train", failed)) {
    return true;
  }
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored)) {
      continue;
    }
    for (fs::directory_iterator image(entry->path(), ignored); !ignored && image != end;
         image.increment(ignored)) {
      if (has_image_suffix(image->path().filename().string())) {
        return true;
      }
    }
  }
  return false;
}

ir::Result<ImageTree> read_image_tree(const fs::path& folder) {
  return TreeReader(folder).read();
}

}  // namespace xpipe::executor::nn
